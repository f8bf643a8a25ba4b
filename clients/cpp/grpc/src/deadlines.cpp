#include "deadlines.h"

#include <algorithm>

namespace policybridge {

Deadlines::~Deadlines() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable())
    thread_.join();
}

void Deadlines::add(Deadline &deadline) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!thread_.joinable())
    thread_ = std::thread([this] { watch(); });
  watched_.push_back(&deadline);
}

void Deadlines::remove(Deadline &deadline) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  watched_.erase(std::remove(watched_.begin(), watched_.end(), &deadline), watched_.end());
}

void Deadlines::hurry() noexcept {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    hurried_ = true;
  }
  changed_.notify_one();
}

void Deadlines::watch() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!ended_) {
    // A wait that begins while this one lasts cannot be due before it is over, unless `hurry` says so.
    changed_.wait_until(lock, cancel_late(Deadline::Clock::now()), [this] { return ended_ || hurried_; });
    hurried_ = false;
  }
}

Deadline::Clock::time_point Deadlines::cancel_late(Deadline::Clock::time_point now) {
  std::int64_t next = Deadline::ticks(now + longest_);
  for (Deadline *deadline : watched_) {
    std::int64_t due = deadline->due_.load(std::memory_order_acquire);
    if (due == Deadline::idle || due == Deadline::late)
      continue;
    if (due > Deadline::ticks(now))
      next = std::min(next, due);
    else if (deadline->due_.compare_exchange_strong(due, Deadline::late, std::memory_order_acq_rel))
      deadline->call_.TryCancel();
    else if (due > 0)
      next = std::min(next, due);
  }
  return Deadline::Clock::time_point(Deadline::Clock::duration(next));
}

} // namespace policybridge
