#include "spared_measuring.h"

#include "settings.h"

#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/InlineCost.h"
#include "llvm/Analysis/InlineModelFeatureMaps.h"
#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/Instructions.h"
#include "llvm/Support/CommandLine.h"

using namespace llvm;

namespace policybridge::plugin {
namespace {

bool calls_itself(const Function &function) {
  return any_of(function.users(), [&](const User *user) {
    const auto *call = dyn_cast<CallBase>(user);
    return call && call->getFunction() == &function;
  });
}

/// Whether LLVM's walk may find that a viable callee cannot be inlined here: for its stack, or for a call that must
/// not be duplicated.
bool may_be_refused(const Function &caller, const Function &callee) {
  bool allocates = false;
  for (const Instruction &each : instructions(callee)) {
    const auto *call = dyn_cast<CallBase>(&each);
    const auto *memory = dyn_cast<AllocaInst>(&each);
    if ((call && call->cannotDuplicate()) || (memory && !memory->isStaticAlloca()))
      return true;
    allocates |= memory != nullptr;
  }
  return allocates && (callee.hasFnAttribute("inline-max-stacksize") || caller.hasFnAttribute("inline-max-stacksize") ||
                       calls_itself(caller));
}

} // namespace

/// Whether LLVM itself must measure: the policy takes a feature that only LLVM's class has, or the command line makes
/// LLVM pass over some calls.
bool SparedInlineAdvisor::needs_all() {
  const cl::Option *skipping = cl::getRegisteredOptions().lookup("ml-inliner-skip-policy");
  return may_take("cost_estimate") || may_take("node_count") || may_take("edge_count") ||
         (skipping && skipping->getNumOccurrences());
}

bool SparedInlineAdvisor::takes_costs() {
#define POLICYBRIDGE_TAKEN(type, shape, name, text) || may_take(#name)
  return false INLINE_COST_FEATURE_ITERATOR(POLICYBRIDGE_TAKEN);
#undef POLICYBRIDGE_TAKEN
}

std::unique_ptr<InlineAdvice> SparedInlineAdvisor::getAdviceImpl(CallBase &call) {
  return needs_all_ ? MLInlineAdvisor::getAdviceImpl(call) : spared_advice(call);
}

/// The steps of LLVM's `MLInlineAdvisor::getAdviceImpl`, in its order.
std::unique_ptr<InlineAdvice> SparedInlineAdvisor::spared_advice(CallBase &call) {
  Function &caller = *call.getCaller(), &callee = *call.getCalledFunction();
  if (!FAM.getResult<DominatorTreeAnalysis>(caller).isReachableFromEntry(call.getParent()))
    return fixed_advice(call, false);
  auto &remarks = FAM.getResult<OptimizationRemarkEmitterAnalysis>(caller);
  const MandatoryInliningKind kind = getMandatoryKind(call, FAM, remarks);
  if (kind == MandatoryInliningKind::Never || &caller == &callee)
    return getMandatoryAdvice(call, false);
  if (!isInlineViable(callee).isSuccess())
    return fixed_advice(call, false);
  const bool is_mandatory = kind == MandatoryInliningKind::Always;
  if (isForcedToStop())
    return fixed_advice(call, is_mandatory);
  if (!measure(call))
    return fixed_advice(call, false);
  if (is_mandatory)
    return getMandatoryAdvice(call, true);
  set_features(call);
  return getAdviceFromModel(call, remarks);
}

/// Advice of which LLVM's class keeps nothing in mind.
std::unique_ptr<InlineAdvice> SparedInlineAdvisor::fixed_advice(CallBase &call, bool inlines) {
  return std::make_unique<InlineAdvice>(this, call, getCallerORE(call), inlines);
}

/// Set the cost features, if the policy takes one; false where the call cannot be inlined.
bool SparedInlineAdvisor::measure(CallBase &call) {
  Function &callee = *call.getCalledFunction();
  if (!takes_costs_ && !may_be_refused(*call.getCaller(), callee))
    return true;
  const std::optional<InlineCostFeatures> costs = getInliningCostFeatures(
      call, FAM.getResult<TargetIRAnalysis>(callee),
      [&](Function &function) -> AssumptionCache & { return FAM.getResult<AssumptionAnalysis>(function); });
  for (std::size_t index = 0; costs && index < costs->size(); ++index)
    *ModelRunner->getTensor<std::int64_t>(index) = (*costs)[index];
  return costs.has_value();
}

/// Set the other features, but for those of `needs_all`.
void SparedInlineAdvisor::set_features(CallBase &call) {
  Function &caller = *call.getCaller(), &callee = *call.getCalledFunction();
  const FunctionPropertiesInfo &above = getCachedFPI(caller), &below = getCachedFPI(callee);
  const auto set = [&](FeatureIndex feature, std::int64_t value) {
    *ModelRunner->getTensor<std::int64_t>(feature) = value;
  };
  set(FeatureIndex::callee_basic_block_count, below.BasicBlockCount);
  set(FeatureIndex::callsite_height, getInitialFunctionLevel(caller));
  set(FeatureIndex::nr_ctant_params, count_if(call.args(), [](const Use &given) { return isa<Constant>(given); }));
  set(FeatureIndex::caller_users, above.Uses);
  set(FeatureIndex::caller_conditionally_executed_blocks, above.BlocksReachedFromConditionalInstruction);
  set(FeatureIndex::caller_basic_block_count, above.BasicBlockCount);
  set(FeatureIndex::callee_conditionally_executed_blocks, below.BlocksReachedFromConditionalInstruction);
  set(FeatureIndex::callee_users, below.Uses);
  set(FeatureIndex::is_callee_avail_external, callee.hasAvailableExternallyLinkage());
  set(FeatureIndex::is_caller_avail_external, caller.hasAvailableExternallyLinkage());
}

} // namespace policybridge::plugin
