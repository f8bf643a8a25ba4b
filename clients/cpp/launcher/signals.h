#pragma once

#include "descriptor.h"
#include "policybridge/status.h"

#include <array>
#include <csignal>
#include <optional>
#include <poll.h>
#include <sys/epoll.h>

namespace policybridge {

/// Receives SIGINT, SIGTERM and SIGHUP, which ask the launcher to stop, through a file descriptor; those that are
/// ignored stay ignored. No system call is interrupted, so that no process and no folder is left behind.
class Signals {
public:
  Signals();
  Signals(const Signals &) = delete;
  Signals &operator=(const Signals &) = delete;

  /// Becomes readable when a signal has come.
  int descriptor() const { return descriptor_.get(); }

  /// The number of the signal that has come, if any; the first one is remembered.
  std::optional<int> received();

  /// Restore the signal mask, in a process that is about to become another program.
  void restore() const;

private:
  sigset_t before_{};
  Descriptor descriptor_;
  std::optional<int> received_;
};

/// The status of work that a signal to the launcher has ended; `Signals::received` says which signal.
inline Status interrupted() { return {StatusCode::Cancelled, "the launcher was told to stop"}; }

/// What makes waiting for the server pointless: a signal to the launcher, or the end of the compiler, which then no
/// longer needs the advice.
class Interrupts {
public:
  /// `compiler` becomes readable when the compiler has exited; −1 where there is none.
  explicit Interrupts(Signals &signals, int compiler = -1) : signals_(signals), compiler_(compiler) {}

  /// For `WaitOptions::interrupts`.
  std::array<int, 2> descriptors() const { return {signals_.descriptor(), compiler_}; }

  bool compiler_ended() const {
    pollfd compiler = {compiler_, POLLIN, 0};
    return poll(&compiler, 1, 0) > 0;
  }

  bool raised() { return signals_.received() || compiler_ended(); }

private:
  Signals &signals_;
  int compiler_;
};

/// The end of a compiler that does not run yet: what a connection that is made before waits for, too.
class CompilerEnd {
public:
  /// Becomes readable when the descriptor that was watched does; −1 if there is none.
  int descriptor() const { return epoll_.get(); }

  void watch(int descriptor) {
    epoll_event event = {};
    event.events = EPOLLIN;
    // It cannot fail but for want of memory; then a wait goes on until its time-out.
    (void)epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, descriptor, &event);
  }

private:
  const Descriptor epoll_{epoll_create1(EPOLL_CLOEXEC)};
};

} // namespace policybridge
