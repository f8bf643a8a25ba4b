#include "advisor.h"

#include "embedded_policy.h"

#include "llvm/Config/llvm-config.h"

#include <map>
#include <optional>
#include <string>

namespace policybridge::plugin {
namespace {

/// Advises by the policy that is linked into this plugin.
class EmbeddedAdvisor final : public Advisor {
public:
  Status open() override;
  Status set_site(const std::string &) override { return {}; }
  Result<std::int64_t> ask(const Question &question) override;

private:
  std::optional<EmbeddedPolicy> policy_;
  std::vector<std::size_t> begins_; ///< of the features in a question, in bytes
};

Status EmbeddedAdvisor::open() {
  const std::map<std::string, std::string> labels{{"llvm", std::to_string(LLVM_VERSION_MAJOR)}};
  for (const char *kind : {"", advice_name})
    if (Status status = EmbeddedPolicy::check_scope(labels, kind); !status.ok())
      return status;
  statistics().policy = EmbeddedPolicy::version();
  const std::vector<TensorSpec> features = features_of_question();
  std::size_t begin = 0;
  for (const TensorSpec &spec : features) {
    begins_.push_back(begin);
    begin += spec.byte_size();
  }
  const embedded_policy_kind *kind = EmbeddedPolicy::find(advice_name);
  if (!kind)
    return unimplemented(std::string("the policy in this plugin makes no decisions of the kind ") + advice_name);
  return policy_.emplace(*kind).bind(features);
}

Result<std::int64_t> EmbeddedAdvisor::ask(const Question &question) {
  const auto *bytes = reinterpret_cast<const char *>(question.data());
  return policy_->decide([&](std::size_t feature) { return bytes + begins_[feature]; });
}

} // namespace

std::unique_ptr<Advisor> make_advisor(const Settings &, const std::string &) {
  return std::make_unique<EmbeddedAdvisor>();
}

bool has_own_policy() { return true; }

const char *plugin_version() { return embedded_policy_identity; }

} // namespace policybridge::plugin
