#ifndef POLICYBRIDGE_PLUGIN_WORKER_H
#define POLICYBRIDGE_PLUGIN_WORKER_H

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace policybridge::plugin {

/// A thread that makes calls one after the other, in the order in which they were posted. Signals go to the other threads
/// of the process.
class Worker {
public:
  using Call = std::function<void()>;

  Worker() = default;
  Worker(const Worker &) = delete;
  Worker &operator=(const Worker &) = delete;
  ~Worker() { join(); }

  /// Start the thread; false if the system gives none.
  bool start() noexcept;

  /// Let the thread make a call, which does not throw. The thread's own calls post nothing: they are made at once.
  void post(Call call);

  /// Wait until all calls so far have been made. Returns at once in the thread itself.
  void settle();

  /// Wait until all calls have been made, and end the thread. Calls that are posted after this are not made.
  void join() noexcept;

private:
  bool is_own_thread() const { return std::this_thread::get_id() == thread_.get_id(); }
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Call> calls_; // the first is being made
  bool ended_ = false;
  std::thread thread_;
};

} // namespace policybridge::plugin

#endif
