#include "deadline.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <limits>

namespace policybridge {

Deadline::Deadline(std::chrono::microseconds timeout)
    : end_(std::chrono::steady_clock::now() + std::min(timeout, longest_timeout)) {}

int Deadline::milliseconds_left() const noexcept {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end_ - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, std::numeric_limits<int>::max()));
}

std::string seconds(std::chrono::microseconds time) {
  std::array<char, 32> text;
  const double value = std::chrono::duration<double>(time).count();
  const auto result = std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, 6);
  return std::string(text.data(), result.ptr) + " s";
}

} // namespace policybridge
