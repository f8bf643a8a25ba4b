#ifndef POLICYBRIDGE_SRC_WIRE_H
#define POLICYBRIDGE_SRC_WIRE_H

#include "policybridge/span.h"
#include "policybridge/status.h"

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <sys/types.h>

namespace policybridge {

/// When a wait is over.
class Deadline {
public:
  explicit Deadline(std::chrono::microseconds timeout);

  /// What is left, in milliseconds as poll takes them, rounded up; 0 when it is over.
  int milliseconds_left() const noexcept;

private:
  std::chrono::steady_clock::time_point end_;
};

/// "0.5 s", for messages.
std::string seconds(std::chrono::microseconds time);

/// A file descriptor that is closed with its owner.
class Descriptor {
public:
  Descriptor() noexcept = default;
  explicit Descriptor(int fd) noexcept : fd_(fd) {}
  Descriptor(Descriptor &&other) noexcept : fd_(other.release()) {}
  Descriptor &operator=(Descriptor &&other) noexcept;
  ~Descriptor();

  int get() const noexcept { return fd_; }
  bool is_open() const noexcept { return fd_ >= 0; }
  void close() noexcept;

private:
  int release() noexcept;

  int fd_ = -1;
};

/// Whether to wait awake for the next answer: always where the last one came soon enough, ever more seldom where it did
/// not. Who waits awake where cores are scarce keeps the server from running.
class Wakefulness {
public:
  bool is_due() noexcept { return left_ == 0 || --left_ == 0; }
  void paid() noexcept { pause_ = 0; }
  void cost() noexcept { left_ = pause_ = pause_ < longest_pause ? 2 * pause_ + 1 : longest_pause; }

private:
  static constexpr unsigned longest_pause = 255;

  unsigned pause_ = 0;
  unsigned left_ = 0;
};

/// A connected Unix socket whose every failure is a status: DeadlineExceeded where something did not come within the
/// timeout, Unavailable where the server cannot be reached or went away.
class Wire {
public:
  /// Connect to the server at `path`; `timeout` bounds this and each later call, for `spin` of which it stays awake.
  static Result<Wire> connect(const std::string &path, std::chrono::microseconds timeout,
                              std::chrono::microseconds spin = {});

  /// Send the parts as one. That the server has closed comes out when its answer is read: what it said before, perhaps
  /// why, is still there.
  Status send(Span<const std::string_view> parts);

  /// Fill `to` with exactly `size` bytes.
  Status receive(char *to, std::size_t size);

  /// Give a line with its newline. ResourceExhausted: it is too long.
  Status receive_line(std::string &line);

  bool is_open() const noexcept { return socket_.is_open(); }
  void close() noexcept { socket_.close(); }

private:
  Wire(Descriptor socket, std::string path, std::chrono::microseconds timeout);

  ssize_t receive_awake(char *to, std::size_t size);
  Result<std::size_t> receive_some(char *to, std::size_t size, const Deadline &deadline, bool &waited);
  Status fill(const Deadline &deadline, bool &waited);
  Status gone() const;
  Status failed(const char *what, int error) const;

  Descriptor socket_;
  std::string path_;
  std::chrono::microseconds timeout_;
  std::chrono::microseconds spin_ = {};
  Wakefulness wakefulness_;
  // Received and not taken yet: a reply comes by one system call, whatever it is read in.
  std::unique_ptr<char[]> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

} // namespace policybridge

#endif
