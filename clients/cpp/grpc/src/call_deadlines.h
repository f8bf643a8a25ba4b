#ifndef POLICYBRIDGE_GRPC_CALL_DEADLINES_H
#define POLICYBRIDGE_GRPC_CALL_DEADLINES_H

#include "descriptor.h"

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include <grpcpp/client_context.h>

namespace policybridge {

class CallDeadlines;

/// How a call's wait ended.
enum class WaitEnd { Answered, Late, Interrupted };

/// The deadline of a call's current wait, if the call is waiting.
///
/// gRPC has one deadline for a whole call, which may last as long as a compilation. So another thread cancels a call
/// whose wait is late, and the waiting thread can use gRPC's synchronous calls, which are the fastest: a decision of an
/// echo policy took 75 to 95 µs with them, 82 to 102 with a completion queue and 103 to 113 with reactors.
class CallDeadline {
public:
  using Clock = std::chrono::steady_clock;

  /// `deadlines` watch it, and outlive it. Throws std::system_error where their thread cannot be started.
  CallDeadline(CallDeadlines &deadlines, ::grpc::ClientContext &call);
  CallDeadline(const CallDeadline &) = delete;
  CallDeadline &operator=(const CallDeadline &) = delete;
  ~CallDeadline();

  /// Begin a wait of at most so long.
  void begin(Clock::duration longest) noexcept;

  /// The same for a wait that nothing interrupts.
  void begin_last(Clock::duration time) noexcept;

  /// End the wait. Unless it was answered, the call is cancelled.
  WaitEnd end() noexcept {
    const std::int64_t due = due_.exchange(idle);
    return due == late ? WaitEnd::Late : due == interrupted ? WaitEnd::Interrupted : WaitEnd::Answered;
  }

private:
  friend class CallDeadlines;
  static constexpr std::int64_t idle = 0;
  static constexpr std::int64_t late = -1;
  static constexpr std::int64_t interrupted = -2;

  static std::int64_t ticks(Clock::time_point time) noexcept { return time.time_since_epoch().count(); }

  CallDeadlines &deadlines_;
  ::grpc::ClientContext &call_;
  std::atomic<bool> is_last_{false};
  std::atomic<std::int64_t> due_{idle};
};

/// Watches the calls of one connection in a thread of its own. Any thread may use it.
class CallDeadlines {
public:
  /// `longest`: no wait of a call is longer than this. `interrupts`: as in `ConnectOptions`.
  CallDeadlines(CallDeadline::Clock::duration longest, std::array<int, 2> interrupts)
      : longest_(longest), interrupts_(interrupts) {}
  CallDeadlines(const CallDeadlines &) = delete;
  CallDeadlines &operator=(const CallDeadlines &) = delete;
  ~CallDeadlines();

private:
  friend class CallDeadline;

  void add(CallDeadline &deadline);
  void remove(CallDeadline &deadline) noexcept;
  void hurry() noexcept;
  void start();
  void watch();
  void sleep(CallDeadline::Clock::time_point until);
  CallDeadline::Clock::time_point cancel_late(CallDeadline::Clock::time_point now);

  const CallDeadline::Clock::duration longest_;
  const std::array<int, 2> interrupts_;
  std::mutex mutex_;
  std::vector<CallDeadline *> watched_;
  std::atomic<bool> is_interrupted_{false}; // so is every wait from then on
  std::atomic<bool> ended_{false};
  Descriptor alarm_; // an eventfd, readable when the thread has to look again
  std::thread thread_;
};

} // namespace policybridge

#endif
