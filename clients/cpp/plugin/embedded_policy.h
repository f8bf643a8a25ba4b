#ifndef POLICYBRIDGE_PLUGIN_EMBEDDED_POLICY_H
#define POLICYBRIDGE_PLUGIN_EMBEDDED_POLICY_H

#include "embedded_policy_symbols.h"

#include "policybridge/policybridge.h"

#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace policybridge::plugin {

/// Decisions of one kind by the policy that `policybridge embed` linked into this plugin, and the observation that it
/// decides on.
class EmbeddedPolicy {
public:
  /// The policy's decisions of the kind with this name of the advice; null if it makes none.
  static const embedded_policy_kind *find(std::string_view kind);

  explicit EmbeddedPolicy(const embedded_policy_kind &kind) : kind_(kind) {}

  /// Find the policy's features among the compiler's. InvalidArgument: one is missing, or has another type or size.
  Status bind(const std::vector<TensorSpec> &features);

  /// Decide. `value_of` gives where the value of a feature of `bind` lies, by its place.
  template <class ValueOf> Result<std::int64_t> decide(const ValueOf &value_of) {
    auto *bytes = reinterpret_cast<char *>(observation_.data());
    for (const Move &move : moves_)
      std::memcpy(bytes + move.offset, value_of(move.feature), move.size);
    return decide();
  }

  /// OutOfRange: the policy, or its decisions of a kind, are not for a compilation with these labels. A label that is
  /// absent is in every scope.
  static Status check_scope(const std::map<std::string, std::string> &labels, std::string_view kind = {});

  /// The kinds of decisions that are not for a compilation with these labels, each with the reason. OutOfRange: the policy
  /// is not, or no kind is left.
  static Result<std::map<std::string, std::string>> outside(const std::map<std::string, std::string> &labels);

  /// The version that decides.
  static PolicyVersion version();

private:
  /// Where a feature of the compiler's lies in the policy's observation.
  struct Move {
    std::size_t feature;
    std::size_t offset;
    std::size_t size;
  };

  Result<std::int64_t> decide();

  const embedded_policy_kind &kind_;
  std::vector<Move> moves_;
  std::vector<std::uint64_t> observation_; ///< of 64 bits, so that it is aligned for every element type
};

} // namespace policybridge::plugin

#endif
