#include "embedded_policy.h"

#include "embedded_policy_symbols.h"

#include <algorithm>

namespace policybridge::plugin {
namespace {

Status check(const embedded_policy_tensor &wanted, const TensorSpec &spec) {
  if (std::strcmp(to_string(spec.type), wanted.type) == 0 && spec.byte_size() == wanted.size)
    return {};
  return invalid_argument(std::string("the policy takes ") + wanted.name + " as " + std::to_string(wanted.size) +
                          " bytes of " + wanted.type + "; the compiler has " + spec.to_string());
}

} // namespace

PolicyVersion EmbeddedPolicy::version() {
  return {embedded_policy_name, embedded_policy_version, embedded_policy_digest};
}

Status EmbeddedPolicy::bind(const std::vector<TensorSpec> &features) {
  observation_.resize(embedded_policy_observation_size / 8 + 1);
  embedded_policy_fill(reinterpret_cast<embedded_policy_observation *>(observation_.data()));
  for (std::size_t index = 0; index < embedded_policy_feature_count; ++index) {
    const embedded_policy_tensor &wanted = embedded_policy_features[index];
    const auto feature = std::find_if(features.begin(), features.end(),
                                      [&](const TensorSpec &spec) { return spec.name == wanted.name; });
    if (feature == features.end()) {
      if (wanted.has_default)
        continue;
      return invalid_argument(std::string("the policy needs ") + wanted.name + ", which the compiler does not have");
    }
    if (Status status = check(wanted, *feature); !status.ok())
      return status;
    moves_.push_back({static_cast<std::size_t>(feature - features.begin()), wanted.offset, wanted.size});
  }
  return {};
}

Result<std::int64_t> EmbeddedPolicy::decide() {
  std::int64_t advice = 0;
  const int status = embedded_policy_decide(reinterpret_cast<embedded_policy_observation *>(observation_.data()),
                                            reinterpret_cast<embedded_policy_advice *>(&advice));
  if (status)
    return internal_error(embedded_policy_status_text(status));
  return advice;
}

} // namespace policybridge::plugin
