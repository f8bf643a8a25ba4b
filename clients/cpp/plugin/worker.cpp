#include "worker.h"

#include <csignal>
#include <exception>
#include <utility>

namespace policybridge::plugin {

bool Worker::start() noexcept {
  sigset_t all, before;
  sigfillset(&all);
  // Inherited by the thread, and by those that gRPC starts in it.
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    const std::lock_guard<std::mutex> lock(mutex_); // the thread reads its own id
    thread_ = std::thread([this] { work(); });
  } catch (const std::exception &) {
    // Without a thread.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return thread_.joinable();
}

void Worker::post(Call call) {
  if (is_own_thread())
    return call();
  const std::lock_guard<std::mutex> lock(mutex_);
  if (ended_)
    return;
  calls_.push_back(std::move(call));
  changed_.notify_all();
}

void Worker::settle() {
  if (is_own_thread())
    return;
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return calls_.empty(); });
}

void Worker::join() noexcept {
  if (!thread_.joinable() || is_own_thread())
    return;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }
  thread_.join();
}

void Worker::work() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ended_ || !calls_.empty(); });
    if (calls_.empty())
      return;
    // Moved, so that what the call holds is destroyed here and not under the lock.
    Call call = std::move(calls_.front());
    lock.unlock();
    call();
    call = nullptr;
    lock.lock();
    calls_.pop_front();
    changed_.notify_all();
  }
}

} // namespace policybridge::plugin
