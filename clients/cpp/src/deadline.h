#ifndef POLICYBRIDGE_SRC_DEADLINE_H
#define POLICYBRIDGE_SRC_DEADLINE_H

#include <chrono>
#include <string>

namespace policybridge {

/// Longer time-outs are cut to a year, which every clock can hold.
inline constexpr std::chrono::microseconds longest_timeout = std::chrono::hours(24 * 365);

/// The point in time at which a wait ends.
class Deadline {
public:
  explicit Deadline(std::chrono::microseconds timeout);

  /// The time left in milliseconds, as poll takes it, rounded up; 0 once the deadline has passed.
  int milliseconds_left() const noexcept;

private:
  std::chrono::steady_clock::time_point end_;
};

/// "0.5 s", for messages.
std::string seconds(std::chrono::microseconds time);

} // namespace policybridge

#endif
