#include "advisor.h"

#include "embedded_policy.h"

#include <optional>
#include <string>

namespace policybridge::plugin {
namespace {

/// Advises by the policy that is linked into this plugin.
class EmbeddedAdvisor final : public Advisor {
public:
  explicit EmbeddedAdvisor(std::map<std::string, std::string> labels) : labels_(std::move(labels)) {}

  bool may_decide(const char *kind) const override { return EmbeddedPolicy::find(kind) != nullptr; }

private:
  Status open(const char *kind, llvm::ArrayRef<Feature> features) override;
  Status turn_to(const char *kind, llvm::ArrayRef<Feature> features) override;
  bool decides(const char *kind) const override { return may_decide(kind) && !outside_.count(kind); }
  Result<std::int64_t> evaluate(llvm::ArrayRef<Feature> features) override;

  std::map<std::string, std::string> labels_;
  std::map<std::string, std::string> outside_; ///< of the scopes of these kinds, by the kind
  std::optional<EmbeddedPolicy> policy_; ///< for the kind of the next decisions
};

Status EmbeddedAdvisor::open(const char *kind, llvm::ArrayRef<Feature> features) {
  auto outside = EmbeddedPolicy::outside(labels_);
  if (!outside.ok())
    return outside.status();
  outside_ = *std::move(outside);
  Statistics &statistics = report().statistics;
  for (const auto &[left, reason] : outside_)
    statistics.outside[left].reason = reason;
  statistics.policy = EmbeddedPolicy::version();
  return outside_.count(kind) ? Status() : turn_to(kind, features);
}

Status EmbeddedAdvisor::turn_to(const char *kind, llvm::ArrayRef<Feature> features) {
  const embedded_policy_kind *found = EmbeddedPolicy::find(kind);
  if (!found)
    return unimplemented(std::string("the policy in this plugin makes no decisions of the kind ") + kind);
  return policy_.emplace(*found).bind(specs_of(features));
}

Result<std::int64_t> EmbeddedAdvisor::evaluate(llvm::ArrayRef<Feature> features) {
  return policy_->decide([&](std::size_t feature) { return features[feature].words.data(); });
}

} // namespace

void expect_module(const Settings &, std::string, std::map<std::string, std::string>) {}

std::unique_ptr<Advisor> make_advisor(const Settings &, std::string, std::map<std::string, std::string> labels) {
  return std::make_unique<EmbeddedAdvisor>(std::move(labels));
}

} // namespace policybridge::plugin
