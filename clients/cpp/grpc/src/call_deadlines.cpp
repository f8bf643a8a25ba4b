#include "call_deadlines.h"

#include <algorithm>
#include <cerrno>
#include <poll.h>
#include <sys/eventfd.h>
#include <system_error>
#include <unistd.h>

namespace policybridge {

CallDeadline::CallDeadline(CallDeadlines &deadlines, ::grpc::ClientContext &call) : deadlines_(deadlines), call_(call) {
  deadlines_.add(*this);
}

CallDeadline::~CallDeadline() { deadlines_.remove(*this); }

void CallDeadline::begin(Clock::duration longest) noexcept {
  due_ = ticks(Clock::now() + longest);
  // Asked after the wait has begun: an interrupt that comes from now on finds it.
  if (deadlines_.is_interrupted_ || longest < deadlines_.longest_)
    deadlines_.hurry();
}

void CallDeadline::begin_last(Clock::duration time) noexcept {
  is_last_ = true;
  due_ = ticks(Clock::now() + time);
  deadlines_.hurry();
}

CallDeadlines::~CallDeadlines() {
  ended_ = true;
  if (!thread_.joinable())
    return;
  hurry();
  thread_.join();
}

void CallDeadlines::start() {
  alarm_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!alarm_.is_open())
    throw std::system_error(errno, std::generic_category(), "no eventfd");
  thread_ = std::thread([this] { watch(); });
}

void CallDeadlines::add(CallDeadline &deadline) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!thread_.joinable())
    start();
  watched_.push_back(&deadline);
}

void CallDeadlines::remove(CallDeadline &deadline) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  watched_.erase(std::remove(watched_.begin(), watched_.end(), &deadline), watched_.end());
}

/// Check all deadlines again, because something has changed for one.
void CallDeadlines::hurry() noexcept {
  constexpr std::uint64_t once = 1;
  // It fails only where the alarm is on already.
  (void)!write(alarm_.get(), &once, sizeof once);
}

void CallDeadlines::watch() {
  while (!ended_)
    // A wait that begins meanwhile and has the longest time-out is due later; a shorter one calls `hurry`.
    sleep(cancel_late(CallDeadline::Clock::now()));
}

/// Wait until then, for the alarm, or for an interrupt.
void CallDeadlines::sleep(CallDeadline::Clock::time_point until) {
  std::array<pollfd, 3> sources = {pollfd{alarm_.get(), POLLIN, 0}, {interrupts_[0], POLLIN, 0}, {interrupts_[1], POLLIN, 0}};
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - CallDeadline::Clock::now()).count();
  const int timeout = static_cast<int>(std::clamp<std::int64_t>(left, 0, 1000 * 3600));
  // A descriptor stays readable, and would wake this thread again and again.
  if (poll(sources.data(), is_interrupted_ ? 1 : sources.size(), timeout) <= 0)
    return;
  std::uint64_t count = 0;
  if (sources[0].revents)
    (void)!read(alarm_.get(), &count, sizeof count);
  if (sources[1].revents || sources[2].revents)
    is_interrupted_ = true;
}

CallDeadline::Clock::time_point CallDeadlines::cancel_late(CallDeadline::Clock::time_point now) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::int64_t next = CallDeadline::ticks(now + longest_);
  for (CallDeadline *deadline : watched_) {
    std::int64_t due = deadline->due_;
    if (due <= CallDeadline::idle)
      continue;
    const bool interrupts = is_interrupted_ && !deadline->is_last_;
    if (due > CallDeadline::ticks(now) && !interrupts)
      next = std::min(next, due);
    else if (deadline->due_.compare_exchange_strong(due, interrupts ? CallDeadline::interrupted : CallDeadline::late))
      deadline->call_.TryCancel();
    else if (due > 0)
      next = std::min(next, due);
  }
  return CallDeadline::Clock::time_point(CallDeadline::Clock::duration(next));
}

} // namespace policybridge
