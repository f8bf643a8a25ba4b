#include "inline_advisor.h"

#include "call_costs.h"
#include "sha256.h"
#include "spared_measuring.h"

#include "policybridge/llvm_model_runner.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/Analysis/InlineModelFeatureMaps.h"
#include "llvm/Analysis/LazyCallGraph.h"
#include "llvm/Analysis/MLModelRunner.h"
#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/Module.h"

#include <vector>

#if LLVM_VERSION_MAJOR < 22
// LLVM 22 has no such variable; see inliner.cpp.
asm(".weak _ZN4llvm10FeatureMapE");
#endif

using namespace llvm;

namespace policybridge::plugin {
namespace {

/// The features of ours behind LLVM's own, each one int64.
enum Added : std::size_t {
  default_decision,
  site_hash,
  caller_hash,
  callee_hash,
  callee_is_local,
  callee_is_discardable,
  caller_is_discardable,
  instructions_of_callee,
  instructions_of_caller,
  added_count
};
constexpr const char *added_names[] = {nullptr,
                                       "site",
                                       "caller",
                                       "callee",
                                       "callee_local",
                                       "callee_discardable",
                                       "caller_discardable",
                                       "callee_instructions",
                                       "caller_instructions"};

/// Holds LLVM's features, followed by ours.
class SessionRunner final : public MLModelRunner {
public:
  SessionRunner(LLVMContext &context, const std::vector<llvm::TensorSpec> &specs, ModuleSession &session)
      : MLModelRunner(context, Kind::Interactive, specs.size()), session_(session) {
    features_.reserve(specs.size() + added_count);
    for (const llvm::TensorSpec &spec : specs) {
      Feature &feature = add(spec);
      setUpBufferForTensor(features_.size() - 1, spec, feature.words.data());
    }
    add(DefaultDecisionSpec);
    for (std::size_t index = site_hash; index < added_count; ++index) {
      add(llvm::TensorSpec::createSpec<int64_t>(added_names[index], {1}));
      wanted_[index] = may_take(added_names[index]);
    }
  }

  /// Set the features of ours for the next decision.
  void set(const CallBase &call, const Site &site, bool own, std::int64_t callee_instructions,
           std::int64_t caller_instructions) {
    const Function &callee = *call.getCalledFunction();
    added(default_decision) = own;
    added(site_hash) = site.key;
    if (wanted_[caller_hash])
      added(caller_hash) = hash_of(site.caller);
    if (wanted_[callee_hash])
      added(callee_hash) = hash_of(lasting_name(callee.getName()));
    added(callee_is_local) = callee.hasLocalLinkage();
    added(callee_is_discardable) = callee.isDiscardableIfUnused();
    added(caller_is_discardable) = call.getCaller()->isDiscardableIfUnused();
    added(instructions_of_callee) = static_cast<std::uint64_t>(callee_instructions);
    added(instructions_of_caller) = static_cast<std::uint64_t>(caller_instructions);
  }

private:
  Feature &add(const llvm::TensorSpec &spec) {
    // The library has every element type that LLVM has.
    return features_.emplace_back(
        Feature{*tensor_spec_of(spec), std::vector<std::uint64_t>(spec.getTotalTensorBufferSize() / 8 + 1)});
  }

  /// Names repeat within a module, and a hash takes thousands of instructions if the processor has none for SHA-256.
  std::uint64_t hash_of(StringRef name) {
    const auto [hash, is_new] = hashes_.try_emplace(name);
    if (is_new)
      hash->second = sha256_head({name.data(), name.size()});
    return hash->second;
  }

  std::uint64_t &added(Added feature) { return features_[features_.size() - added_count + feature].words.front(); }

  void *evaluateUntyped() override {
    advice_ = session_.decide(features_, added(default_decision) != 0);
    return &advice_;
  }

  ModuleSession &session_;
  std::vector<Feature> features_;
  bool wanted_[added_count] = {};
  StringMap<std::uint64_t> hashes_;
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

/// Counts the advice that LLVM followed, and its growth of the module beyond LLVM's own decisions.
class CountedAdvice final : public MLInlineAdvice {
public:
  CountedAdvice(MLInlineAdvisor *advisor, CallBase &call, OptimizationRemarkEmitter &remarks, bool inlines,
                bool adds, ModuleSession &session)
      : MLInlineAdvice(advisor, call, remarks, inlines), added_(adds ? CalleeIRSize : 0), session_(session) {}

private:
  void recordInliningImpl() override {
    session_.count_inlined(added_);
    MLInlineAdvice::recordInliningImpl();
  }
  void recordInliningWithCalleeDeletedImpl() override {
    session_.count_inlined(added_);
    MLInlineAdvice::recordInliningWithCalleeDeletedImpl();
  }

  const std::int64_t added_;
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

class PolicyInlineAdvisor final : public SparedInlineAdvisor {
public:
  PolicyInlineAdvisor(Module &module, Heuristic heuristic, CallSites *sites, ModuleSession &session)
      : SparedInlineAdvisor(module, session.analyses(), runner_for(module, session), std::move(heuristic)), sites_(sites),
        session_(session), call_graph_(session.analyses().getResult<LazyCallGraphAnalysis>(module)) {}

  ~PolicyInlineAdvisor() override {
    if (sites_)
      sites_->strip();
  }

private:
  std::unique_ptr<InlineAdvice> getAdviceImpl(CallBase &call) override {
    forget_costs(*call.getCaller(), FAM);
    // Every call counts, so that its name is the same as under a store of decisions.
    if (sites_)
      site_ = sites_->ask(call);
    if (is_recursive(call) && !isForcedToStop())
      return recursion_advice(call);
    if (is_left_to_llvm(call))
      return std::make_unique<InlineAdvice>(this, call, getCallerORE(call), GetDefaultAdvice(call));
    return SparedInlineAdvisor::getAdviceImpl(call);
  }

  std::unique_ptr<InlineAdvice> getMandatoryAdvice(CallBase &call, bool inlines) override {
    forget_costs(*call.getCaller(), FAM);
    if (is_left_to_llvm(call))
      return std::make_unique<InlineAdvice>(this, call, getCallerORE(call), inlines);
    return MLInlineAdvisor::getMandatoryAdvice(call, inlines);
  }

  std::unique_ptr<MLInlineAdvice> getAdviceFromModel(CallBase &call, OptimizationRemarkEmitter &remarks) override {
    const bool own = GetDefaultAdvice(call);
    if (session_.is_limited()) {
      session_.count_limited();
      return std::make_unique<MLInlineAdvice>(this, call, remarks, own);
    }
    static_cast<SessionRunner &>(*ModelRunner)
        .set(call, site_, own, getIRSize(*call.getCalledFunction()), getIRSize(*call.getCaller()));
    const bool inlines = ModelRunner->evaluate<std::int64_t>() != 0;
    remarks.emit([&] {
      return OptimizationRemarkAnalysis("policybridge", inlines ? "Inline" : "Leave", &call)
             << session_.policy_name() << (inlines ? " inlines " : " leaves ")
             << ore::NV("Callee", call.getCalledFunction()) << " in " << ore::NV("Caller", call.getCaller());
    });
    return std::make_unique<CountedAdvice>(this, call, remarks, inlines, inlines && !own, session_);
  }

  static bool is_recursive(const CallBase &call) { return call.getCaller() == call.getCalledFunction(); }

  /// LLVM's own decision about a call of a function to itself, which LLVM's machine-learned advisor never inlines. The
  /// inlining changes the caller, so it is recorded as every other. The feature `edge_count` may be off by a few after
  /// it: it counts the calls of caller and callee, which are one function here.
  std::unique_ptr<InlineAdvice> recursion_advice(CallBase &call) {
    if (!GetDefaultAdvice(call))
      return std::make_unique<InlineAdvice>(this, call, getCallerORE(call), false);
    if (is_unreachable(call))
      return std::make_unique<InlineAdvice>(this, call, getCallerORE(call), true);
    return std::make_unique<MLInlineAdvice>(this, call, getCallerORE(call), true);
  }

  bool is_unreachable(CallBase &call) {
    return !FAM.getResult<DominatorTreeAnalysis>(*call.getCaller()).isReachableFromEntry(call.getParent());
  }

  /// Whether LLVM decides about a call without the policy: a call in an unreachable block. LLVM's machine-learned
  /// advisor never inlines such calls, while LLVM's heuristic may. The features do not count unreachable blocks, so
  /// nothing has to be updated when such a call is inlined. The exception is a callee in the same component of the call
  /// graph that would be deleted by the inlining: LLVM's advisor has to update its state for that, and can do so only
  /// for reachable calls.
  bool is_left_to_llvm(CallBase &call) {
    Function &caller = *call.getCaller();
    if (!is_unreachable(call))
      return false;
    return !(call.getCalledFunction()->hasLocalLinkage() && in_one_component(caller, *call.getCalledFunction()));
  }

  bool in_one_component(const Function &one, const Function &other) const {
    LazyCallGraph::Node *first = call_graph_.lookup(one);
    LazyCallGraph::Node *second = call_graph_.lookup(other);
    return first && second && call_graph_.lookupSCC(*first) == call_graph_.lookupSCC(*second);
  }

  CallSites *sites_;
  ModuleSession &session_;
  LazyCallGraph &call_graph_;
  Site site_; // of the call that LLVM asks about
};

} // namespace

std::unique_ptr<InlineAdvisor> make_inline_advisor(Module &module, FunctionAnalysisManager &functions,
                                                   InlineParams parameters, InlineContext context, CallSites *sites,
                                                   ModuleSession &session) {
  return std::make_unique<PolicyInlineAdvisor>(module, Heuristic(module, functions, parameters, context), sites,
                                               session);
}

} // namespace policybridge::plugin
