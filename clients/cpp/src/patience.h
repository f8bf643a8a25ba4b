#ifndef POLICYBRIDGE_SRC_PATIENCE_H
#define POLICYBRIDGE_SRC_PATIENCE_H

#include "deadline.h"
#include "policybridge/status.h"

#include <chrono>
#include <cstdint>

namespace policybridge {

/// Bounds all waits of one compilation together. Without it, a server that answers each time just before the time-out
/// would hold a compilation with thousands of decisions for days.
///
/// Together they may last three time-outs, and a tenth of a time-out more for each decision.
class Patience {
public:
  using Time = std::chrono::nanoseconds;

  explicit Patience(std::chrono::microseconds timeout) : left_(3 * limited(timeout)), each_(limited(timeout) / 10) {}

  /// Count a decision that took `time`.
  void count(Time time) {
    ++decisions_;
    total_ += time;
    left_ += each_ - time;
  }

  /// DeadlineExceeded: the waits together took too long.
  Status check() const { return left_.count() < 0 ? over() : Status(); }

private:
  static Time limited(std::chrono::microseconds timeout) { return timeout < longest_timeout ? timeout : longest_timeout; }

  Status over() const {
    const auto time = [](Time value) { return seconds(std::chrono::duration_cast<std::chrono::milliseconds>(value)); };
    return deadline_exceeded("the server took " + time(total_) + " for " + std::to_string(decisions_) +
                             " decisions, and has " + time(total_ + left_) + " for that number");
  }

  Time left_;
  const Time each_;
  Time total_{};
  std::uint64_t decisions_ = 0;
};

} // namespace policybridge

#endif
