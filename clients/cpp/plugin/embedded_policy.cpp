#include "embedded_policy.h"

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

const embedded_policy_kind *EmbeddedPolicy::find(std::string_view kind) {
  const embedded_policy_kind *const end = embedded_policy_kinds + embedded_policy_kind_count;
  const auto *found = std::find_if(embedded_policy_kinds, end, [&](const auto &each) { return each.name == kind; });
  return found == end ? nullptr : found;
}

Status EmbeddedPolicy::check_scope(const std::map<std::string, std::string> &labels, std::string_view kind) {
  const std::string name(kind);
  const std::string policy = std::string(embedded_policy_name) + "@" + std::to_string(embedded_policy_version);
  const std::string decides = name.empty() ? " is" : " decides " + name;
  const std::string table = name.empty() ? "" : "kinds." + name + ".";
  for (const auto &[label, value] : labels) {
    std::string known;
    bool is_known = false;
    for (const auto *row = embedded_policy_scope; row != embedded_policy_scope + embedded_policy_scope_count; ++row) {
      if (row->label != label || row->kind != kind)
        continue;
      is_known |= row->value == value;
      known += (known.empty() ? "" : " or ") + std::string(row->value);
    }
    if (!known.empty() && !is_known)
      return {StatusCode::OutOfRange, policy + decides + " for " + label + " " + known + ", and the compilation has '" +
                                          value + "' ([" + table + "scope] in policy.toml)"};
  }
  return {};
}

Result<std::map<std::string, std::string>>
EmbeddedPolicy::outside(const std::map<std::string, std::string> &labels) {
  if (Status status = check_scope(labels); !status.ok())
    return status;
  std::map<std::string, std::string> outside;
  std::string reasons;
  for (std::size_t index = 0; index < embedded_policy_kind_count; ++index) {
    const char *kind = embedded_policy_kinds[index].name;
    if (const Status status = check_scope(labels, kind); !status.ok()) {
      outside[kind] = status.message();
      reasons += (reasons.empty() ? "" : "; ") + status.message();
    }
  }
  if (outside.size() == embedded_policy_kind_count)
    return Status(StatusCode::OutOfRange, std::move(reasons));
  return outside;
}

Status EmbeddedPolicy::bind(const std::vector<TensorSpec> &features) {
  moves_.clear();
  observation_.resize(kind_.observation_size / 8 + 1);
  kind_.fill(observation_.data());
  for (std::size_t index = 0; index < kind_.feature_count; ++index) {
    const embedded_policy_tensor &wanted = kind_.features[index];
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
  if (const int status = kind_.decide(observation_.data(), &advice))
    return internal_error(kind_.status_text(status));
  return advice;
}

} // namespace policybridge::plugin
