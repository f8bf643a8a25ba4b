#include "spared_measuring.h"

#include "call_costs.h"
#include "settings.h"

#include "llvm/Analysis/InlineCost.h"
#include "llvm/Analysis/InlineModelFeatureMaps.h"
#include "llvm/Analysis/OptimizationRemarkEmitter.h"
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

/// LLVM's class keeps its counts of the module's functions and calls private; an explicit instantiation may name them.
template <std::int64_t MLInlineAdvisor::*nodes, std::int64_t MLInlineAdvisor::*edges> struct Counts {
  friend std::int64_t nodes_of(const MLInlineAdvisor &advisor) { return advisor.*nodes; }
  friend std::int64_t edges_of(const MLInlineAdvisor &advisor) { return advisor.*edges; }
};
std::int64_t nodes_of(const MLInlineAdvisor &advisor);
std::int64_t edges_of(const MLInlineAdvisor &advisor);
template struct Counts<&MLInlineAdvisor::NodeCount, &MLInlineAdvisor::EdgeCount>;

/// Whether LLVM's own steps are taken: the command line makes it pass over some calls, or give features of its own.
bool SparedInlineAdvisor::is_left_to_llvm() {
  const auto is_set = [](const char *name) {
    const cl::Option *option = cl::getRegisteredOptions().lookup(name);
    return option && option->getNumOccurrences();
  };
  return is_set("ml-inliner-skip-policy") || is_set("ml-inliner-ir2vec-vocab-file");
}

bool SparedInlineAdvisor::takes_estimate() { return may_take("cost_estimate"); }

bool SparedInlineAdvisor::takes_costs() {
#define POLICYBRIDGE_TAKEN(type, shape, name, text) || may_take(#name)
  return takes_estimate() INLINE_COST_FEATURE_ITERATOR(POLICYBRIDGE_TAKEN);
#undef POLICYBRIDGE_TAKEN
}

std::unique_ptr<InlineAdvice> SparedInlineAdvisor::getAdviceImpl(CallBase &call) {
  return is_left_to_llvm_ ? MLInlineAdvisor::getAdviceImpl(call) : spared_advice(call);
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
  if (!measure(call, is_mandatory))
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

/// Set the features about costs, if the policy takes one; false where the call cannot be inlined.
bool SparedInlineAdvisor::measure(CallBase &call, bool is_mandatory) {
  if (!takes_costs_ && !may_be_refused(*call.getCaller(), *call.getCalledFunction()))
    return true;
  const CallCosts costs = costs_of(call, FAM, takes_estimate_);
  for (std::size_t index = 0; costs.features && index < costs.features->size(); ++index)
    *ModelRunner->getTensor<std::int64_t>(index) = (*costs.features)[index];
  *ModelRunner->getTensor<std::int64_t>(FeatureIndex::cost_estimate) = costs.estimate.value_or(0);
  return costs.features && (costs.estimate || is_mandatory || !takes_estimate_);
}

/// Set the other features.
void SparedInlineAdvisor::set_features(CallBase &call) {
  Function &caller = *call.getCaller(), &callee = *call.getCalledFunction();
  const FunctionPropertiesInfo &above = getCachedFPI(caller), &below = getCachedFPI(callee);
  const auto set = [&](FeatureIndex feature, std::int64_t value) {
    *ModelRunner->getTensor<std::int64_t>(feature) = value;
  };
  set(FeatureIndex::callee_basic_block_count, below.BasicBlockCount);
  set(FeatureIndex::callsite_height, getInitialFunctionLevel(caller));
  set(FeatureIndex::node_count, nodes_of(*this));
  set(FeatureIndex::edge_count, edges_of(*this));
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
