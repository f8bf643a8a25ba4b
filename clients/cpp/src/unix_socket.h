#ifndef POLICYBRIDGE_SRC_UNIX_SOCKET_H
#define POLICYBRIDGE_SRC_UNIX_SOCKET_H

#include "deadline.h"
#include "descriptor.h"
#include "policybridge/span.h"
#include "policybridge/status.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <sys/types.h>

namespace policybridge {

/// How long, and in which way, to wait for a server.
struct WaitOptions {
  /// Bounds each exchange, connecting included.
  std::chrono::microseconds timeout;
  /// How long to poll the socket in a busy loop before sleeping; 0: sleep at once.
  std::chrono::microseconds spin = {};
  /// File descriptors that end a wait with the status Cancelled when they become readable; −1 for none.
  std::array<int, 2> interrupts = {-1, -1};

  bool can_be_interrupted() const noexcept { return interrupts[0] >= 0 || interrupts[1] >= 0; }
};

/// Decides whether to spin before the next wait: always after a spin that met its answer, ever more seldom after spins
/// that did not. Where cores are scarce, spinning keeps the server from running.
class SpinBackoff {
public:
  bool should_spin() noexcept { return left_ == 0 || --left_ == 0; }
  void succeeded() noexcept { pause_ = 0; }
  void failed() noexcept { left_ = pause_ = pause_ < longest_pause ? 2 * pause_ + 1 : longest_pause; }

private:
  static constexpr unsigned longest_pause = 255;

  unsigned pause_ = 0;
  unsigned left_ = 0;
};

/// A connected Unix socket. Each failure is a status: DeadlineExceeded: the time is over. Unavailable: the server
/// cannot be reached, or it went away. Cancelled: one of `WaitOptions::interrupts` became readable.
///
/// A request and its answer are an exchange. However many calls and pieces it takes, it has one deadline.
class UnixSocket {
public:
  /// Connect to the server at `path`. Connecting and what follows up to the first `begin_exchange` are one exchange.
  static Result<UnixSocket> connect(const std::string &path, const WaitOptions &options);

  /// Begin the next exchange.
  void begin_exchange() {
    deadline_ = Deadline(options_.timeout);
    waited_ = false;
  }

  /// From now on nothing interrupts a wait.
  void disregard_interrupts() noexcept { options_.interrupts = {-1, -1}; }

  /// Begin the last exchange, of at most so long, which nothing interrupts: the compiler may have ended.
  void begin_last_exchange(std::chrono::microseconds longest) {
    options_.timeout = std::min(options_.timeout, longest);
    options_.interrupts = {-1, -1};
    deadline_ = Deadline(options_.timeout);
    // The kernel's time-out is longer.
    waited_ = true;
  }

  /// Send up to 5 parts as one. If the server has closed, this is Ok and the next receive fails: the reason that the server
  /// sent before it closed can still be read.
  Status send(Span<const std::string_view> parts);

  /// Fill `to` with exactly `size` bytes.
  Status receive(char *to, std::size_t size);

  /// Give a line with its newline. ResourceExhausted: it is too long.
  Status receive_line(std::string &line);

  bool is_open() const noexcept { return socket_.is_open(); }
  void close() noexcept { socket_.close(); }

private:
  UnixSocket(Descriptor socket, std::string path, const WaitOptions &options);

  Status wait(short events, const char *action);
  ssize_t receive_spinning(char *to, std::size_t size);
  Result<std::size_t> receive_some(char *to, std::size_t size);
  Status fill();
  Status gone() const;
  Status failed(const char *action, int error) const;

  Descriptor socket_;
  std::string path_;
  WaitOptions options_;
  Deadline deadline_;
  // Whether this exchange has waited before. Then the kernel's time-out is longer than the time that is left.
  bool waited_ = true;
  SpinBackoff spin_backoff_;
  // Bytes received and not yet consumed: a reply takes one system call, however many reads consume it.
  std::unique_ptr<char[]> buffer_;
  std::size_t begin_ = 0;
  std::size_t end_ = 0;
};

} // namespace policybridge

#endif
