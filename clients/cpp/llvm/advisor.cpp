#include "advisor.h"

#include <chrono>

namespace policybridge::plugin {

std::vector<TensorSpec> specs_of(llvm::ArrayRef<Feature> features) {
  std::vector<TensorSpec> specs;
  for (const Feature &feature : features)
    specs.push_back(feature.spec);
  return specs;
}

bool Advisor::decide(llvm::ArrayRef<Feature> features, bool own) {
  Statistics &statistics = report_.statistics;
  if (!is_open_ && is_ready()) {
    is_open_ = true;
    if (Status failure = open(features); !failure.ok())
      fail(std::move(failure));
  }
  if (statistics.failure.ok()) {
    const auto begun = std::chrono::steady_clock::now();
    const Result<std::int64_t> advice = evaluate(features);
    if (advice.ok()) {
      statistics.count(*advice != 0, std::chrono::steady_clock::now() - begun);
      return *advice != 0;
    }
    fail(advice.status());
  }
  ++statistics.defaults;
  return own;
}

} // namespace policybridge::plugin
