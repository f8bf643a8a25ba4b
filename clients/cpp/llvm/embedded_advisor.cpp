#include "advisor.h"

#include "embedded_policy.h"

namespace policybridge::plugin {
namespace {

/// Advises by the policy that is linked into this plugin.
class EmbeddedAdvisor final : public Advisor {
private:
  Status open(const char *kind, llvm::ArrayRef<Feature> features) override;
  Result<std::int64_t> evaluate(llvm::ArrayRef<Feature> features) override;

  EmbeddedPolicy policy_;
};

Status EmbeddedAdvisor::open(const char *, llvm::ArrayRef<Feature> features) {
  report().statistics.policy = EmbeddedPolicy::version();
  return policy_.bind(specs_of(features));
}

Result<std::int64_t> EmbeddedAdvisor::evaluate(llvm::ArrayRef<Feature> features) {
  return policy_.decide([&](std::size_t feature) { return features[feature].words.data(); });
}

} // namespace

std::unique_ptr<Advisor> make_advisor(const Settings &, std::string) { return std::make_unique<EmbeddedAdvisor>(); }

} // namespace policybridge::plugin
