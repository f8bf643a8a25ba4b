#ifndef POLICYBRIDGE_GRPC_DEADLINES_H
#define POLICYBRIDGE_GRPC_DEADLINES_H

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

#include <grpcpp/client_context.h>

namespace policybridge {

/// The deadline of the wait that a call is in, if it is in one.
///
/// gRPC has one deadline for a whole call, which may last as long as a compilation. A wait that is late is ended by
/// cancelling its call from another thread, so that the waiting one can use gRPC's synchronous calls: a decision over
/// an echo took 75 to 95 µs with them, 82 to 102 by a completion queue and 103 to 113 by reactors.
class Deadline {
public:
  using Clock = std::chrono::steady_clock;

  explicit Deadline(::grpc::ClientContext &call) : call_(call) {}

  /// A wait begins; it may last until `due`.
  void begin(Clock::time_point due) noexcept { due_.store(ticks(due), std::memory_order_release); }

  /// The wait is over. Whether it was late; then the call is cancelled.
  bool end() noexcept { return due_.exchange(idle, std::memory_order_acq_rel) == late; }

private:
  friend class Deadlines;
  static constexpr std::int64_t idle = 0;
  static constexpr std::int64_t late = -1;

  static std::int64_t ticks(Clock::time_point time) noexcept { return time.time_since_epoch().count(); }

  ::grpc::ClientContext &call_;
  std::atomic<std::int64_t> due_{idle};
};

/// Watches over the calls of one connection in a thread of its own. For several threads.
class Deadlines {
public:
  /// `longest` is the longest wait that a call begins.
  explicit Deadlines(Deadline::Clock::duration longest) : longest_(longest) {}
  Deadlines(const Deadlines &) = delete;
  Deadlines &operator=(const Deadlines &) = delete;
  ~Deadlines();

  /// Watch over `deadline` until it is removed. Throws std::system_error where no thread can be had.
  void add(Deadline &deadline);
  void remove(Deadline &deadline) noexcept;

  /// Look anew: a wait has begun that is shorter than the longest.
  void hurry() noexcept;

private:
  void watch();
  Deadline::Clock::time_point cancel_late(Deadline::Clock::time_point now);

  const Deadline::Clock::duration longest_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Deadline *> watched_;
  bool hurried_ = false;
  bool ended_ = false;
  std::thread thread_;
};

} // namespace policybridge

#endif
