#include "advisor.h"

#include "pass_choices.h"

#include <chrono>
#include <utility>

namespace policybridge::plugin {

std::vector<TensorSpec> specs_of(llvm::ArrayRef<Feature> features) {
  std::vector<TensorSpec> specs;
  for (const Feature &feature : features)
    specs.push_back(feature.spec);
  return specs;
}

/// Begin the session, if that has not been done; false after a failure.
bool Advisor::begin(const char *kind, llvm::ArrayRef<Feature> features) {
  if (!kind_ && is_ready()) {
    kind_ = kind;
    if (Status failure = open(kind, features); !failure.ok())
      fail(std::move(failure));
  }
  return report_.statistics.failure.ok();
}

/// Ask the policy, which makes decisions of this kind. A failure ends the session.
Result<std::int64_t> Advisor::ask(const char *kind, llvm::ArrayRef<Feature> features) {
  if (std::exchange(kind_, kind) != kind)
    if (Status failure = turn_to(kind, features); !failure.ok())
      return failure;
  return evaluate(features);
}

bool Advisor::decide(llvm::ArrayRef<Feature> features, bool own) {
  Statistics &statistics = report_.statistics;
  if (begin(inlining, features)) {
    if (!decides(inlining)) {
      statistics.count_outside(inlining, 1);
      return own;
    }
    const auto begun = std::chrono::steady_clock::now();
    const Result<std::int64_t> advice = ask(inlining, features);
    if (advice.ok()) {
      statistics.count(*advice != 0, std::chrono::steady_clock::now() - begun);
      return *advice != 0;
    }
    fail(advice.status());
  }
  ++statistics.defaults;
  return own;
}

bool Advisor::chooses_passes(llvm::ArrayRef<Feature> features) {
  const bool is_new = !kind_;
  Status &failure = report_.statistics.failure;
  if (begin(pass_choice, features) && decides(pass_choice))
    return true;
  // Nobody asked for a decision yet. So a module without any is compiled as if there were no policy, even if there is none,
  // or it has no form for these decisions.
  const bool is_missing = failure.code() == StatusCode::NotFound || failure.code() == StatusCode::FailedPrecondition;
  if (is_new && (failure.ok() || is_missing)) {
    failure = Status();
    forget();
    kind_ = nullptr;
  }
  return false;
}

std::size_t Advisor::choose_passes(llvm::StringRef function, llvm::ArrayRef<Feature> features) {
  Statistics &statistics = report_.statistics;
  if (!statistics.passes)
    statistics.passes.emplace();
  if (statistics.failure.ok()) {
    const Result<std::size_t> advice = advised_passes(function, features);
    if (advice.ok()) {
      ++statistics.passes->decisions;
      ++statistics.passes->advice[std::string(pass_alternatives()[*advice].name)];
      return *advice;
    }
    fail(advice.status());
  }
  ++statistics.passes->defaults;
  return 0;
}

Result<std::size_t> Advisor::advised_passes(llvm::StringRef function, llvm::ArrayRef<Feature> features) {
  if (Status failure = set_context(function); !failure.ok())
    return failure;
  const Result<std::int64_t> advice = ask(pass_choice, features);
  if (!advice.ok())
    return advice.status();
  const std::size_t count = pass_alternatives().size();
  if (*advice < 0 || static_cast<std::uint64_t>(*advice) >= count)
    return invalid_argument("the policy advises passes by the number " + std::to_string(*advice) +
                            ", and this plugin has the numbers 0 to " + std::to_string(count - 1));
  return static_cast<std::size_t>(*advice);
}

} // namespace policybridge::plugin
