#include "defaults.h"

#include "version.h"

namespace policybridge {

namespace {

// Earlier ones write the default over the feature callee_basic_block_count and always send 0 in its own place
// (llvm/lib/Analysis/MLInlineAdvisor.cpp: InlineCostFeatureIndex::NumberOfFeatures as its index). Seen in 19 and 20.
constexpr int sent_from = 21;

// LLVM inlines at -Oz what costs less (OptMinSizeThreshold in llvm/include/llvm/Analysis/InlineCost.h).
constexpr std::int64_t size_threshold = 5;

constexpr std::string_view added_feature = R"(,{"name":"inlining_default","type":"int64_t","port":0,"shape":[1]})";

} // namespace

Result<Defaults> Defaults::of(const Compiler &compiler, const Task &task, Signals &signals) {
  if (!is_inline(task))
    return Defaults(Source::Unknown);
  Result<int> version = llvm_version(compiler.start, signals);
  if (!version)
    return std::move(version.error());
  if (*version >= sent_from)
    return Defaults(Source::Sent);
  return Defaults(compiler.size_level() ? Source::Computed : Source::Unknown);
}

Failure Defaults::begin(const Signature &signature) {
  const Spec *spec = signature.feature(source_ == Source::Computed ? "cost_estimate" : "inlining_default");
  found_ = spec && spec->size == sizeof computed_ && signature.advice.size == sizeof computed_;
  place_ = spec ? spec->offset : 0;
  size_ = spec ? spec->size : 0;
  if (source_ == Source::Computed && !found_)
    return Error::policy(InvalidArgument,
                         "LLVM sends no feature cost_estimate, from which its default at -Oz could be computed");
  return {};
}

std::string Defaults::extended(std::string_view line) const {
  std::string extended(line);
  // The features' list ends where the advice begins; LLVM writes no other ] followed by it.
  const std::size_t end = source_ == Source::Computed ? extended.rfind("],\"advice\":") : std::string::npos;
  if (end != std::string::npos)
    extended.insert(end, added_feature);
  return extended;
}

std::string_view Defaults::addition(std::string_view payload) {
  if (source_ != Source::Computed)
    return {};
  const Spec cost{"cost_estimate", "int64_t", 1, size_, place_};
  computed_ = integer_of(cost, payload.data() + place_) < size_threshold ? 1 : 0;
  return {reinterpret_cast<const char *>(&computed_), sizeof computed_};
}

Result<std::string_view> Defaults::answer(std::string_view payload) {
  if (!known() || !found_)
    return Error::policy(FailedPrecondition, "LLVM's own decision is not among the features");
  return source_ == Source::Computed ? addition(payload) : payload.substr(place_, size_);
}

} // namespace policybridge
