#ifndef POLICYBRIDGE_SRC_DESCRIPTOR_H
#define POLICYBRIDGE_SRC_DESCRIPTOR_H

#include <unistd.h>
#include <utility>

namespace policybridge {

/// A file descriptor that is closed with its owner.
class Descriptor {
public:
  Descriptor() noexcept = default;
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  Descriptor(Descriptor &&other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor &operator=(Descriptor &&other) noexcept {
    std::swap(fd_, other.fd_);
    other.close();
    return *this;
  }
  ~Descriptor() { close(); }

  int get() const noexcept { return fd_; }
  bool is_open() const noexcept { return fd_ >= 0; }
  void close() noexcept {
    if (is_open())
      ::close(std::exchange(fd_, -1));
  }

private:
  int fd_ = -1;
};

} // namespace policybridge

#endif
