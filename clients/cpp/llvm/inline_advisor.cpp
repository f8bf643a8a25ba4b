#include "inline_advisor.h"

#include "policybridge/llvm_model_runner.h"

#include "llvm/Analysis/InlineModelFeatureMaps.h"
#include "llvm/Analysis/LazyCallGraph.h"
#include "llvm/Analysis/MLInlineAdvisor.h"
#include "llvm/Analysis/MLModelRunner.h"
#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/Module.h"

#include <vector>

using namespace llvm;

namespace policybridge::plugin {
namespace {

/// Holds LLVM's features, followed by LLVM's own decision.
class SessionRunner final : public MLModelRunner {
public:
  SessionRunner(LLVMContext &context, const std::vector<llvm::TensorSpec> &specs, ModuleSession &session)
      : MLModelRunner(context, Kind::Interactive, specs.size()), session_(session) {
    features_.reserve(specs.size() + 1);
    for (const llvm::TensorSpec &spec : specs) {
      Feature &feature = add(spec);
      setUpBufferForTensor(features_.size() - 1, spec, feature.words.data());
    }
    add(DefaultDecisionSpec);
  }

  void set_default(bool inlines) { features_.back().words.front() = inlines; }

private:
  Feature &add(const llvm::TensorSpec &spec) {
    // The library has every element type that LLVM has.
    return features_.emplace_back(
        Feature{*tensor_spec_of(spec), std::vector<std::uint64_t>(spec.getTotalTensorBufferSize() / 8 + 1)});
  }

  void *evaluateUntyped() override {
    advice_ = session_.decide(features_);
    return &advice_;
  }

  ModuleSession &session_;
  std::vector<Feature> features_;
  std::int64_t advice_ = 0;
};

/// What LLVM's advisor takes to make its model runner.
#if LLVM_VERSION_MAJOR < 22
std::unique_ptr<MLModelRunner> runner_for(Module &module, ModuleSession &session) {
  return std::make_unique<SessionRunner>(module.getContext(), llvm::FeatureMap, session);
}
#else
auto runner_for(Module &module, ModuleSession &session) {
  return [&](const std::vector<llvm::TensorSpec> &features) -> std::unique_ptr<MLModelRunner> {
    return std::make_unique<SessionRunner>(module.getContext(), features, session);
  };
}
#endif

/// Counts the advice that LLVM followed.
class CountedAdvice final : public MLInlineAdvice {
public:
  CountedAdvice(MLInlineAdvisor *advisor, CallBase &call, OptimizationRemarkEmitter &remarks, bool inlines,
                ModuleSession &session)
      : MLInlineAdvice(advisor, call, remarks, inlines), session_(session) {}

private:
  void recordInliningImpl() override {
    session_.count_inlined();
    MLInlineAdvice::recordInliningImpl();
  }
  void recordInliningWithCalleeDeletedImpl() override {
    session_.count_inlined();
    MLInlineAdvice::recordInliningWithCalleeDeletedImpl();
  }

  ModuleSession &session_;
};

/// LLVM's own decision.
class Heuristic {
public:
  Heuristic(Module &module, FunctionAnalysisManager &functions, InlineParams parameters, InlineContext context)
      : advisor_(std::make_shared<DefaultInlineAdvisor>(module, functions, std::move(parameters), context)) {}

  bool operator()(CallBase &call) const {
    const std::unique_ptr<InlineAdvice> advice = advisor_->getAdvice(call);
    const bool inlines = advice && advice->isInliningRecommended();
    if (advice)
      advice->recordUnattemptedInlining();
    return inlines;
  }

private:
  std::shared_ptr<DefaultInlineAdvisor> advisor_;
};

class PolicyInlineAdvisor final : public MLInlineAdvisor {
public:
  PolicyInlineAdvisor(Module &module, Heuristic heuristic, ModuleSession &session)
      : MLInlineAdvisor(module, session.analyses(), runner_for(module, session), std::move(heuristic)),
        session_(session), call_graph_(session.analyses().getResult<LazyCallGraphAnalysis>(module)) {}

private:
  std::unique_ptr<InlineAdvice> getAdviceImpl(CallBase &call) override {
    if (is_left_to_llvm(call))
      return std::make_unique<InlineAdvice>(this, call, getCallerORE(call), GetDefaultAdvice(call));
    return MLInlineAdvisor::getAdviceImpl(call);
  }

  std::unique_ptr<InlineAdvice> getMandatoryAdvice(CallBase &call, bool inlines) override {
    if (is_left_to_llvm(call))
      return std::make_unique<InlineAdvice>(this, call, getCallerORE(call), inlines);
    return MLInlineAdvisor::getMandatoryAdvice(call, inlines);
  }

  std::unique_ptr<MLInlineAdvice> getAdviceFromModel(CallBase &call, OptimizationRemarkEmitter &remarks) override {
    static_cast<SessionRunner &>(*ModelRunner).set_default(GetDefaultAdvice(call));
    return std::make_unique<CountedAdvice>(this, call, remarks, ModelRunner->evaluate<std::int64_t>() != 0, session_);
  }

  /// Whether LLVM decides about a call without the policy: a call in an unreachable block. LLVM's machine-learned
  /// advisor never inlines such calls, while LLVM's heuristic may. The features do not count unreachable blocks, so
  /// nothing has to be updated when such a call is inlined. The exception is a callee in the same component of the call
  /// graph that would be deleted by the inlining: LLVM's advisor has to update its state for that, and can do so only
  /// for reachable calls.
  bool is_left_to_llvm(CallBase &call) {
    Function &caller = *call.getCaller();
    if (FAM.getResult<DominatorTreeAnalysis>(caller).isReachableFromEntry(call.getParent()))
      return false;
    return !(call.getCalledFunction()->hasLocalLinkage() && in_one_component(caller, *call.getCalledFunction()));
  }

  bool in_one_component(const Function &one, const Function &other) const {
    LazyCallGraph::Node *first = call_graph_.lookup(one);
    LazyCallGraph::Node *second = call_graph_.lookup(other);
    return first && second && call_graph_.lookupSCC(*first) == call_graph_.lookupSCC(*second);
  }

  ModuleSession &session_;
  LazyCallGraph &call_graph_;
};

} // namespace

std::unique_ptr<InlineAdvisor> make_inline_advisor(Module &module, FunctionAnalysisManager &functions,
                                                   InlineParams parameters, InlineContext context,
                                                   ModuleSession &session) {
  return std::make_unique<PolicyInlineAdvisor>(module, Heuristic(module, functions, parameters, context), session);
}

} // namespace policybridge::plugin
