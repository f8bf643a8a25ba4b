#include "pass_hooks.h"

#include "module_session.h"
#include "module_stage.h"
#include "pass_gate.h"
#include "store_session.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

using namespace llvm;

namespace policybridge::plugin {
namespace {

constexpr const char *outlining_off = "nooutline";

/// The state that a pipeline's callbacks and passes share; a pipeline has one module at a time.
///
/// The callbacks are registered when a module first needs them: LLVM allocates memory to call one, before and after each run
/// of a pass on a function.
struct Phase {
  PassInstrumentationCallbacks &callbacks;
  bool has_log;
  bool is_asked = false, is_told = false; // about the passes, of changes
  std::shared_ptr<ModulePasses> passes;   // of the module, while LLVM is asked to skip; else null
  bool is_adding = false;                 // while passes run that we have added, about which nothing is chosen
};

using SharedPhase = std::shared_ptr<Phase>;

/// The passes of a pipeline as LLVM parses them. A text makes InstCombine end the process if one iteration leaves work
/// (`parseInstCombineOptions`), which LLVM's own pipelines do not.
std::string runnable(const KnownPipeline &pipeline) {
  SmallVector<StringRef> passes;
  StringRef(pipeline.text.data(), pipeline.text.size()).split(passes, ',');
  std::replace(passes.begin(), passes.end(), StringRef("instcombine"), StringRef("instcombine<no-verify-fixpoint>"));
  return join(passes, ",");
}

/// A call that must be a tail call has its return behind it, which `mergereturn` moves.
bool can_run(const KnownPipeline &pipeline, const Function &function) {
  if (pipeline.text.find("mergereturn") == std::string_view::npos)
    return true;
  return none_of(function, [](const BasicBlock &block) { return block.getTerminatingMustTailCall(); });
}

/// The function that a pass is to run on; null for a pass of modules or of the call graph.
const Function *function_of(const Any &unit) {
  if (const auto *function = any_cast<const Function *>(&unit))
    return *function;
  if (const auto *loop = any_cast<const Loop *>(&unit))
    return (*loop)->getHeader()->getParent();
  return nullptr;
}

bool should_run(Phase &phase, StringRef pass, const Any &unit) {
  if (!phase.passes || phase.is_adding)
    return true;
  const Function *function = function_of(unit);
  if (!function)
    return true;
  if (PassLog *log = phase.passes->log())
    log->ask(function->getName(), pass);
  return phase.passes->should_run(KnownPass::Stage::ir, function->getName(), pass);
}

void register_log(const SharedPhase &phase) {
  PassInstrumentationCallbacks &callbacks = phase->callbacks;
  const auto log = [phase] { return phase->passes && !phase->is_adding ? phase->passes->log() : nullptr; };
  callbacks.registerBeforeSkippedPassCallback([log](StringRef pass, Any) {
    if (PassLog *open = log())
      open->skip(pass);
  });
  callbacks.registerBeforeNonSkippedPassCallback([log](StringRef pass, Any) {
    if (PassLog *open = log())
      open->begin(pass);
  });
  const auto end = [log](bool changed) {
    if (PassLog *open = log())
      open->end(changed);
  };
  callbacks.registerAfterPassCallback(
      [end](StringRef, Any, const PreservedAnalyses &preserved) { end(!preserved.areAllPreserved()); });
  callbacks.registerAfterPassInvalidatedCallback([end](StringRef, const PreservedAnalyses &) { end(true); });
}

/// Have LLVM ask about optional passes.
void be_asked(const SharedPhase &phase) {
  if (std::exchange(phase->is_asked, true))
    return;
  phase->callbacks.registerShouldRunOptionalPassCallback(
      [phase](StringRef pass, const Any &unit) { return should_run(*phase, pass, unit); });
  if (phase->has_log)
    register_log(phase);
}

/// Have LLVM tell the gate of each pass that changes a module.
void be_told(Phase &phase) {
  if (std::exchange(phase.is_told, true))
    return;
  phase.callbacks.registerAfterPassCallback([](StringRef, const Any &unit, const PreservedAnalyses &preserved) {
    if (const auto *module = any_cast<const Module *>(&unit); module && !preserved.areAllPreserved())
      PassGate::changed(const_cast<Module &>(**module));
  });
}

/// Whether a module has functions whose loads LLVM hardens against speculation (X86SpeculativeLoadHardening.cpp): behind some
/// choices it generates wrong code for them.
bool is_hardened(const Module &module) {
  return any_of(module, [](const Function &each) { return each.hasFnAttribute(Attribute::SpeculativeLoadHardening); });
}

/// The choices of a store or a policy; null for none.
std::shared_ptr<ModulePasses> passes_of(Module &module, ModuleAnalysisManager &analyses) {
  if (is_hardened(module))
    return nullptr;
  if (auto *store = analyses.getCachedResult<OwnedByModule<StoreSession>>(module))
    return store->object->passes();
  auto *session = analyses.getCachedResult<OwnedByModule<ModuleSession>>(module);
  return session ? session->object->passes() : nullptr;
}

/// Runs the chosen pipelines on each function.
class Adding {
public:
  Adding(PassBuilder &builder, Phase &phase, Module &module, ModuleAnalysisManager &analyses)
      : builder_(builder), phase_(phase), module_(module), analyses_(analyses) {}

  PreservedAnalyses to_functions(ModulePasses &passes, PassChoice::Point point) {
    auto &functions = analyses_.getResult<FunctionAnalysisManagerModuleProxy>(module_).getManager();
    PreservedAnalyses preserved = PreservedAnalyses::all();
    for (Function &function : module_) {
      if (function.isDeclaration() || function.hasOptNone() || function.isPresplitCoroutine())
        continue;
      for (const KnownPipeline *pipeline : passes.added(function.getName(), point))
        if (can_run(*pipeline, function))
          preserved.intersect(run(*pipeline, function, functions));
    }
    // As LLVM's adaptor of function passes to modules: what changed was invalidated function by function.
    preserved.preserveSet<AllAnalysesOn<Function>>();
    preserved.preserve<FunctionAnalysisManagerModuleProxy>();
    return preserved;
  }

  PreservedAnalyses to_module(ModulePasses &passes) {
    PreservedAnalyses preserved = PreservedAnalyses::all();
    for (const KnownPipeline *pipeline : passes.added_to_module())
      preserved.intersect(run(*pipeline, passes));
    return preserved;
  }

private:
  PreservedAnalyses run(const KnownPipeline &pipeline, Function &function, FunctionAnalysisManager &functions) {
    const auto [at, is_new] = parsed_.try_emplace(&pipeline);
    if (is_new)
      cantFail(builder_.parsePassPipeline(at->second, runnable(pipeline)));
    phase_.is_adding = true;
    const PreservedAnalyses preserved = at->second.run(function, functions);
    phase_.is_adding = false;
    functions.invalidate(function, preserved);
    return preserved;
  }

  /// LLVM's outliner leaves out functions with an attribute.
  PreservedAnalyses run(const KnownPipeline &pipeline, ModulePasses &passes) {
    ModulePassManager added;
    cantFail(builder_.parsePassPipeline(added, runnable(pipeline)));
    std::vector<Function *> marked;
    for (Function &function : module_)
      if (!function.hasFnAttribute(outlining_off) && passes.is_kept_from(function.getName(), pipeline)) {
        function.addFnAttr(outlining_off);
        marked.push_back(&function);
      }
    phase_.is_adding = true;
    PreservedAnalyses preserved = added.run(module_, analyses_);
    phase_.is_adding = false;
    for (Function *function : marked)
      function->removeFnAttr(outlining_off);
    return preserved;
  }

  PassBuilder &builder_;
  Phase &phase_;
  Module &module_;
  ModuleAnalysisManager &analyses_;
  std::map<const KnownPipeline *, FunctionPassManager> parsed_;
};

/// Where the inliner has ended, and each function's passes run without touching another function.
struct EndOfInlining : PassInfoMixin<EndOfInlining> {
  EndOfInlining(PassBuilder &pass_builder, SharedPhase shared) : builder(pass_builder), phase(std::move(shared)) {}

  PreservedAnalyses run(Module &module, ModuleAnalysisManager &analyses) {
    if (auto *session = analyses.getCachedResult<OwnedByModule<ModuleSession>>(module); session && !is_hardened(module))
      session->object->choose_passes();
    phase->passes = passes_of(module, analyses);
    if (!phase->passes)
      return PreservedAnalyses::all();
    be_asked(phase);
    return Adding(builder, *phase, module, analyses).to_functions(*phase->passes, PassChoice::Point::early);
  }
  static bool isRequired() { return true; }

  PassBuilder &builder;
  SharedPhase phase;
};

/// Where the last passes of the functions have run; code generation comes next.
struct EndOfFunctionPasses : PassInfoMixin<EndOfFunctionPasses> {
  EndOfFunctionPasses(PassBuilder &pass_builder, SharedPhase shared)
      : builder(pass_builder), phase(std::move(shared)) {}

  PreservedAnalyses run(Module &module, ModuleAnalysisManager &analyses) {
    phase->passes = nullptr;
    // The pipeline of full LTO has no `EndOfInlining`.
    if (auto *session = analyses.getCachedResult<OwnedByModule<ModuleSession>>(module);
        session && is_full_lto(module, analyses) && !is_hardened(module))
      session->object->choose_passes();
    const std::shared_ptr<ModulePasses> passes = passes_of(module, analyses);
    if (!passes) {
      PassGate::answer_for_none(module.getContext());
      return PreservedAnalyses::all();
    }
    Adding adding(builder, *phase, module, analyses);
    PreservedAnalyses preserved = adding.to_functions(*passes, PassChoice::Point::last);
    preserved.intersect(adding.to_module(*passes));
    const bool sets_switches = is_alone(module, analyses);
    passes->count_codegen(module, sets_switches);
    if (!passes->is_asked_in_codegen()) {
      PassGate::answer_for_none(module.getContext());
      return preserved;
    }
    PassGate::answer_for(module, passes, sets_switches);
    be_told(*phase);
    return preserved;
  }
  static bool isRequired() { return true; }

  PassBuilder &builder;
  SharedPhase phase;
};

} // namespace

void register_pass_hooks(PassBuilder &builder, const std::shared_ptr<const Configuration> &configuration) {
  PassInstrumentationCallbacks *callbacks = builder.getPassInstrumentationCallbacks();
  const Settings &settings = configuration->settings;
  if (!callbacks || !configuration->invalid.ok() || (!configuration->store && !settings.finds_store && settings.is_local() && settings.passes.empty()))
    return;
  const SharedPhase phase(new Phase{*callbacks, !settings.passes.empty()});
  builder.registerOptimizerEarlyEPCallback([phase, &builder](ModulePassManager &passes, OptimizationLevel level, auto...) {
    if (level != OptimizationLevel::O0)
      passes.addPass(EndOfInlining(builder, phase));
  });
  const auto end = [phase, &builder](ModulePassManager &passes, OptimizationLevel level, auto...) {
    if (level != OptimizationLevel::O0)
      passes.addPass(EndOfFunctionPasses(builder, phase));
  };
  builder.registerOptimizerLastEPCallback(end);
  builder.registerFullLinkTimeOptimizationLastEPCallback(end);
}

} // namespace policybridge::plugin
