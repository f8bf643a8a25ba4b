#include "call_deadlines.h"

#include <algorithm>

namespace policybridge {

CallDeadlines::~CallDeadlines() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable())
    thread_.join();
}

void CallDeadlines::add(CallDeadline &deadline) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!thread_.joinable())
    thread_ = std::thread([this] { watch(); });
  watched_.push_back(&deadline);
}

void CallDeadlines::remove(CallDeadline &deadline) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  watched_.erase(std::remove(watched_.begin(), watched_.end(), &deadline), watched_.end());
}

void CallDeadlines::hurry() noexcept {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    hurried_ = true;
  }
  changed_.notify_one();
}

void CallDeadlines::watch() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!ended_) {
    // A wait that begins meanwhile has the longest time-out, and so is due later; for a shorter one, `hurry` is called.
    changed_.wait_until(lock, cancel_late(CallDeadline::Clock::now()), [this] { return ended_ || hurried_; });
    hurried_ = false;
  }
}

CallDeadline::Clock::time_point CallDeadlines::cancel_late(CallDeadline::Clock::time_point now) {
  std::int64_t next = CallDeadline::ticks(now + longest_);
  for (CallDeadline *deadline : watched_) {
    std::int64_t due = deadline->due_.load(std::memory_order_acquire);
    if (due == CallDeadline::idle || due == CallDeadline::late)
      continue;
    if (due > CallDeadline::ticks(now))
      next = std::min(next, due);
    else if (deadline->due_.compare_exchange_strong(due, CallDeadline::late, std::memory_order_acq_rel))
      deadline->call_.TryCancel();
    else if (due > 0)
      next = std::min(next, due);
  }
  return CallDeadline::Clock::time_point(CallDeadline::Clock::duration(next));
}

} // namespace policybridge
