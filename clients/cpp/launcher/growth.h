#pragma once

#include "features.h"

#include <cstdint>
#include <optional>
#include <string_view>

namespace policybridge {

/// Bounds how much a policy can make a module grow. Without it, a policy that always inlines makes a file take minutes.
///
/// Counted is the feature `cost_estimate` of the calls that the policy inlines and LLVM itself would not, so a policy
/// that follows LLVM is never limited. It is 5 for each instruction that the call adds. LLVM does not send the size of
/// the module; it is estimated from the number of its functions.
class Growth {
public:
  /// `limit`: the factor of the module's size that may be added.
  explicit Growth(double limit) : limit_(limit) {}

  /// A module begins. Where a feature is missing that the growth is computed from, there is no limit.
  void begin(const Signature &signature);

  /// Whether the limit is reached: from here on LLVM's own decisions stand in.
  bool is_reached() const { return added_ > allowed_; }

  /// Count a call that the policy inlines, and LLVM would not.
  void count(std::string_view payload);

private:
  double limit_;
  std::optional<FeatureSlice> cost_;
  std::optional<FeatureSlice> functions_;
  double added_ = 0;
  double allowed_ = 0;
};

} // namespace policybridge
