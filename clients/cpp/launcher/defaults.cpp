#include "defaults.h"

namespace policybridge {

namespace {

// Earlier versions write the default over the feature callee_basic_block_count, and always send 0 in its own place,
// because MLInlineAdvisor.cpp uses InlineCostFeatureIndex::NumberOfFeatures as its index. Seen in 19 and 20.
constexpr int first_version_that_sends = 21;

// At -Oz LLVM inlines what costs less than this (OptMinSizeThreshold in llvm/include/llvm/Analysis/InlineCost.h).
constexpr std::int64_t size_threshold = 5;

constexpr const char *default_feature = "inlining_default";

} // namespace

Defaults Defaults::of(const Compiler &compiler, const Task &task, int llvm) {
  if (!is_inline(task))
    return Defaults(Source::Unknown);
  if (llvm >= first_version_that_sends)
    return Defaults(Source::Sent);
  return Defaults(compiler.optimises_for_size() ? Source::Computed : Source::Unknown);
}

Status Defaults::begin(Signature &signature) {
  slice_ = find_feature(signature, source_ == Source::Computed ? "cost_estimate" : default_feature);
  if (slice_ && (slice_->size != sizeof computed_ || signature.advice.byte_size() != sizeof computed_))
    slice_.reset();
  if (source_ != Source::Computed)
    return {};
  if (!slice_)
    return invalid_argument("LLVM sends no feature cost_estimate, from which its default at -Oz could be computed");
  signature.features.push_back(TensorSpec::of<std::int64_t>(default_feature));
  return {};
}

std::string_view Defaults::computed(std::string_view payload) {
  if (source_ != Source::Computed)
    return {};
  computed_ = integer_in(payload.substr(slice_->offset, slice_->size)) < size_threshold ? 1 : 0;
  return {reinterpret_cast<const char *>(&computed_), sizeof computed_};
}

Result<std::string_view> Defaults::decision(std::string_view payload) {
  if (!known() || !slice_)
    return failed_precondition("LLVM's own decision is not among the features");
  return source_ == Source::Computed ? computed(payload) : payload.substr(slice_->offset, slice_->size);
}

} // namespace policybridge
