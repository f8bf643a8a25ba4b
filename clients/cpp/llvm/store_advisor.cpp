#include "store_advisor.h"

#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/BlockFrequencyInfo.h"
#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/Analysis/ProfileSummaryInfo.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#if LLVM_VERSION_MAJOR >= 22
#include "llvm/Analysis/EphemeralValuesCache.h"
#endif
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/Module.h"

#if LLVM_VERSION_MAJOR >= 22
// LLVM 19 has no such variable. Weak, so that it can load this plugin and hear why it cannot use it.
asm(".weak _ZN4llvm23EphemeralValuesAnalysis3KeyE");
#endif

using namespace llvm;

namespace policybridge::plugin {
namespace {

/// Passes on to LLVM's own advice what becomes of it, and to the log.
class LoggedAdvice final : public InlineAdvice {
public:
  LoggedAdvice(InlineAdvisor *advisor, CallBase &call, OptimizationRemarkEmitter &remarks,
               std::unique_ptr<InlineAdvice> own, SiteLog &log, std::size_t entry)
      : InlineAdvice(advisor, call, remarks, own->isInliningRecommended()), own_(std::move(own)), log_(log),
        entry_(entry) {}

private:
  void recordInliningImpl() override {
    log_.set_inlined(entry_, *Caller);
    own_->recordInlining();
  }
  void recordInliningWithCalleeDeletedImpl() override {
    log_.set_inlined(entry_, *Caller);
    own_->recordInliningWithCalleeDeleted();
  }
  void recordUnsuccessfulInliningImpl(const InlineResult &result) override { own_->recordUnsuccessfulInlining(result); }
  void recordUnattemptedInliningImpl() override { own_->recordUnattemptedInlining(); }

  const std::unique_ptr<InlineAdvice> own_;
  SiteLog &log_;
  const std::size_t entry_;
};

/// The store's decision to inline a call that LLVM itself would not.
class StoreAdvice final : public InlineAdvice {
public:
  StoreAdvice(InlineAdvisor *advisor, CallBase &call, OptimizationRemarkEmitter &remarks, StoreSession &session,
              std::size_t entry)
      : InlineAdvice(advisor, call, remarks, true), size_(Callee->getInstructionCount()), session_(session),
        entry_(entry) {}

private:
  void recordInliningImpl() override { count(); }
  void recordInliningWithCalleeDeletedImpl() override { count(); }

  void count() {
    session_.count_added(size_);
    if (SiteLog *log = session_.log())
      log->set_inlined(entry_, *Caller);
    emitInlinedInto(ORE, DLoc, Block, *Callee, *Caller, false, {}, Advisor->getAnnotatedInlinePassName());
  }

  const std::size_t size_;
  StoreSession &session_;
  const std::size_t entry_;
};

class StoreInlineAdvisor final : public InlineAdvisor {
public:
  StoreInlineAdvisor(Module &module, FunctionAnalysisManager &functions, const InlineParams &parameters,
                     InlineContext context, StoreSession &session)
      : InlineAdvisor(module, functions, context), own_(module, functions, parameters, context),
        parameters_(parameters), session_(session) {}

  ~StoreInlineAdvisor() override { session_.sites().strip(); }

  void onPassEntry(LazyCallGraph::SCC *component) override {
    if (SiteLog *log = session_.log())
      log->forget_functions();
    own_.onPassEntry(component);
  }
  void onPassExit(LazyCallGraph::SCC *component) override { own_.onPassExit(component); }

private:
  std::unique_ptr<InlineAdvice> getAdviceImpl(CallBase &call) override {
    const Site site = session_.sites().ask(call);
    SiteLog *log = session_.log();
    const std::optional<InlineCost> cost = log ? std::optional(cost_of(call)) : std::nullopt;
    // Asked once, because it may leave marks on the call.
    std::unique_ptr<InlineAdvice> own = own_.getAdvice(call);
    const bool inlines = own && own->isInliningRecommended();
    const bool taken = decide(call, site, inlines);
    const std::size_t entry = log ? log->add(call, {site, inlines, taken, cost}) : 0;
    if (taken == inlines)
      return log && own ? std::make_unique<LoggedAdvice>(this, call, getCallerORE(call), std::move(own), *log, entry)
                        : std::move(own);
    if (own)
      own->recordUnattemptedInlining();
    if (taken)
      return std::make_unique<StoreAdvice>(this, call, getCallerORE(call), session_, entry);
    return std::make_unique<InlineAdvice>(this, call, getCallerORE(call), false);
  }

  /// LLVM's decision, or the store's where there is one and LLVM can follow it.
  bool decide(CallBase &call, const Site &site, bool own) {
    const std::optional<bool> stored = session_.find(site);
    if (!stored || (*stored != own && !can_follow(call, *stored)))
      return own;
    session_.count_applied();
    return *stored;
  }

  bool can_follow(CallBase &call, bool inlines) {
    Function &callee = *call.getCalledFunction();
    if (call.getCaller() == &callee ||
        getMandatoryKind(call, FAM, getCallerORE(call)) != MandatoryInliningKind::NotMandatory)
      return false;
    return !inlines || (!session_.is_limited() && isInlineViable(callee).isSuccess() && is_possible(call, callee));
  }

  /// Whether LLVM's machine-learned advisor would follow advice to inline the call.
  bool is_possible(CallBase &call, Function &callee) {
    auto &target = FAM.getResult<TargetIRAnalysis>(callee);
    const auto assumptions = [this](Function &function) -> AssumptionCache & {
      return FAM.getResult<AssumptionAnalysis>(function);
    };
    return getInliningCostEstimate(call, target, assumptions).has_value();
  }

  /// The cost that LLVM's own advisor computes, from the same analyses.
  InlineCost cost_of(CallBase &call) {
    const auto assumptions = [this](Function &function) -> AssumptionCache & {
      return FAM.getResult<AssumptionAnalysis>(function);
    };
    const auto frequencies = [this](Function &function) -> BlockFrequencyInfo & {
      return FAM.getResult<BlockFrequencyAnalysis>(function);
    };
    const auto library = [this](Function &function) -> const TargetLibraryInfo & {
      return FAM.getResult<TargetLibraryAnalysis>(function);
    };
    auto &target = FAM.getResult<TargetIRAnalysis>(*call.getCalledFunction());
    auto *profile = FAM.getResult<ModuleAnalysisManagerFunctionProxy>(*call.getCaller())
                        .getCachedResult<ProfileSummaryAnalysis>(M);
#if LLVM_VERSION_MAJOR >= 22
    const auto ephemeral = [this](Function &function) -> EphemeralValuesCache & {
      return FAM.getResult<EphemeralValuesAnalysis>(function);
    };
    return getInlineCost(call, parameters_, target, assumptions, library, frequencies, profile, nullptr, ephemeral);
#else
    return getInlineCost(call, parameters_, target, assumptions, library, frequencies, profile);
#endif
  }

  DefaultInlineAdvisor own_;
  const InlineParams parameters_;
  StoreSession &session_;
};

} // namespace

std::unique_ptr<InlineAdvisor> make_store_advisor(Module &module, FunctionAnalysisManager &functions,
                                                  const InlineParams &parameters, InlineContext context,
                                                  StoreSession &session) {
  return std::make_unique<StoreInlineAdvisor>(module, functions, parameters, context, session);
}

} // namespace policybridge::plugin
