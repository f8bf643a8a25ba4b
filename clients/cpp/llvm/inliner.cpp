#include "call_costs.h"
#include "host_version.h"
#include "inline_advisor.h"
#include "module_names.h"
#include "module_session.h"
#include "module_stage.h"
#include "owned_by_module.h"
#include "pass_hooks.h"
#include "store_advisor.h"
#include "store_session.h"

#include "llvm/Analysis/InlineAdvisor.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/CommandLine.h"
#if LLVM_VERSION_MAJOR < 22
#include "llvm/Passes/PassPlugin.h"
#else
#include "llvm/Plugins/PassPlugin.h"
#endif

#include <mutex>
#include <optional>

#if LLVM_VERSION_MAJOR < 22
// LLVM 22 has no such variable. Weak, so that it can load this plugin and hear why it cannot use it.
asm(".weak _ZN4llvm27PluginInlineAdvisorAnalysis17HasBeenRegisteredE");
#endif

using namespace llvm;

namespace policybridge::plugin {
namespace {

/// LLVM's machine-learned advisor stops inlining once a module has grown by a factor; LLVM's heuristic has no such
/// limit. So remove the limit, unless the command line sets one.
void lift_growth_limit() {
  static std::once_flag once;
  std::call_once(once, [] {
    constexpr const char *name = "ml-advisor-size-increase-threshold";
    cl::Option *limit = cl::getRegisteredOptions().lookup(name);
    if (limit && !limit->getNumOccurrences())
      limit->addOccurrence(0, name, "inf");
  });
}

/// Whether LLVM makes an advisor for the inliner that walks the call graph, the only one that LLVM's machine-learned
/// advisor serves: not the small inliner before profiling, and not the module inliner. A pipeline that names
/// `inliner-wrapper` directly sets no pass, which reads as 0.
bool is_call_graph_inliner(const InlineContext &context) {
  return context.Pass == InlinePass::CGSCCInliner || context.Pass == InlinePass{};
}

using Shared = std::shared_ptr<const Configuration>;

/// The numbered calls of a module whose inlining a policy decides; none where the policy takes nothing of them.
struct NumberedModule {
  NumberedModule(Module &module, ModuleAnalysisManager &, const Shared &) {
    if (may_take("site") || may_take("caller"))
      sites.emplace(module);
  }

  void strip() {
    if (sites)
      sites->strip();
  }

  std::optional<CallSites> sites;
};

/// The session and report of a module. The factory of a plugin gets no module analyses; any function's analyses lead to them.
template <class Object> Object *cached(Module &module, FunctionAnalysisManager &functions) {
  if (module.empty())
    return nullptr;
  auto &outer = functions.getResult<ModuleAnalysisManagerFunctionProxy>(*module.begin());
  auto *result = outer.getCachedResult<OwnedByModule<Object>>(module);
  return result ? result->object.get() : nullptr;
}

/// Remove the numbers of calls that no advisor of ours will ask for, because a pipeline that is named pass by pass has
/// no end at which they are removed.
void strip(Module &module, FunctionAnalysisManager &functions) {
  StoreSession *store = cached<StoreSession>(module, functions);
  if (store && store->is_needed())
    store->sites().strip();
  if (NumberedModule *numbered = cached<NumberedModule>(module, functions))
    numbered->strip();
}

InlineAdvisor *make_advisor(Module &module, FunctionAnalysisManager &functions, InlineParams parameters,
                            InlineContext context) {
  if (is_call_graph_inliner(context)) {
    StoreSession *store = cached<StoreSession>(module, functions);
    if (store && store->is_needed())
      return make_store_advisor(module, functions, parameters, context, *store).release();
    ModuleSession *session = cached<ModuleSession>(module, functions);
    NumberedModule *numbered = cached<NumberedModule>(module, functions);
    if (session && numbered && session->has_policy()) {
      lift_growth_limit();
      CallSites *sites = numbered->sites ? &*numbered->sites : nullptr;
      return make_inline_advisor(module, functions, parameters, context, sites, *session).release();
    }
  }
  // The small inliner before a profile is made is not the last.
  if (context.Pass != InlinePass::EarlyInliner)
    strip(module, functions);
  return new DefaultInlineAdvisor(module, functions, parameters, context);
}
/// Number the calls, unless that has been done.
void number_calls(const Configuration &configuration, Module &module, ModuleAnalysisManager &analyses) {
  if (configuration.settings.is_local())
    analyses.getResult<OwnedByModule<StoreSession>>(module);
  else if (configuration.invalid.ok())
    analyses.getResult<OwnedByModule<NumberedModule>>(module);
}

/// Makes LLVM use the advisor of this plugin. LLVM runs this analysis before it makes an advisor, so the session begins
/// here. LLVM finds it by the name and the result of its base class.
struct AdvisorAnalysis : PluginInlineAdvisorAnalysis {
  explicit AdvisorAnalysis(Shared shared) : PluginInlineAdvisorAnalysis(make_advisor), configuration(std::move(shared)) {}

  Result run(Module &module, ModuleAnalysisManager &analyses) {
    number_calls(*configuration, module, analyses);
    if (!configuration->settings.is_local())
      analyses.getResult<OwnedByModule<ModuleSession>>(module);
    return getResult();
  }

  Shared configuration;
};

/// Whether a policy may be asked about the module, as far as its functions show it.
bool may_ask(const Settings &settings, const Module &module) {
  const bool passes = settings.decides.empty() || is_contained(settings.decides, pass_choice);
  const auto calls = [](const Instruction &instruction) {
    const auto *call = dyn_cast<CallBase>(&instruction);
    const Function *callee = call ? call->getCalledFunction() : nullptr;
    return callee && !callee->isDeclaration();
  };
  return any_of(module, [&](const Function &function) {
    return !function.isDeclaration() && (passes || any_of(instructions(function), calls));
  });
}

/// Numbers the calls, and has the session prepared, where the pipeline starts.
struct StartOfPipeline : PassInfoMixin<StartOfPipeline> {
  explicit StartOfPipeline(Shared shared) : configuration(std::move(shared)) {}

  PreservedAnalyses run(Module &module, ModuleAnalysisManager &analyses) {
    number_calls(*configuration, module, analyses);
    const Settings &settings = configuration->settings;
    if (settings.early && settings.phases.holds(phase_of(module, analyses)) && may_ask(settings, module))
      expect_module(settings, name_of(module), scope_labels(module, analyses));
    return PreservedAnalyses::all();
  }
  static bool isRequired() { return true; }

  Shared configuration;
};

/// Notes that the pipeline is a compiler's, which has this start.
struct StartOfCompilation : PassInfoMixin<StartOfCompilation> {
  PreservedAnalyses run(Module &module, ModuleAnalysisManager &analyses) {
    analyses.getResult<OwnedByModule<ModuleStage>>(module).object->is_compilation = true;
    return PreservedAnalyses::all();
  }
  static bool isRequired() { return true; }
};

/// Notes that the pipeline is that of full LTO.
struct StartOfFullLinkTime : PassInfoMixin<StartOfFullLinkTime> {
  PreservedAnalyses run(Module &module, ModuleAnalysisManager &analyses) {
    analyses.getResult<OwnedByModule<ModuleStage>>(module).object->is_full_lto = true;
    return PreservedAnalyses::all();
  }
  static bool isRequired() { return true; }
};

/// Removes the numbers, where no inliner that we advise has done so.
struct EndOfPipeline : PassInfoMixin<EndOfPipeline> {
  PreservedAnalyses run(Module &module, ModuleAnalysisManager &analyses) {
    auto *store = analyses.getCachedResult<OwnedByModule<StoreSession>>(module);
    if (store && store->object->is_needed())
      store->object->sites().strip();
    if (auto *numbered = analyses.getCachedResult<OwnedByModule<NumberedModule>>(module))
      numbered->object->strip();
    return PreservedAnalyses::all();
  }
  static bool isRequired() { return true; }
};

Shared configure() {
  auto configuration = std::make_shared<Configuration>();
  Settings &settings = configuration->settings;
  configuration->invalid = settings.read();
  if (!configuration->invalid.ok() || settings.decisions.empty())
    return configuration;
  auto store = DecisionStore::open(settings.decisions);
  if (store.ok())
    configuration->store = std::move(*store);
  else
    configuration->invalid = store.status();
  return configuration;
}

void register_callbacks(PassBuilder &builder) {
  const Shared configuration = configure();
  builder.registerAnalysisRegistrationCallback([configuration](ModuleAnalysisManager &analyses) {
    analyses.registerPass([&] { return OwnedByModule<ModuleSession>(configuration); });
    analyses.registerPass([&] { return OwnedByModule<ModuleStage>(configuration); });
    analyses.registerPass([&] { return OwnedByModule<NumberedModule>(configuration); });
    analyses.registerPass([&] { return OwnedByModule<StoreSession>(configuration); });
    analyses.registerPass([&] { return AdvisorAnalysis(configuration); });
  });
  builder.registerAnalysisRegistrationCallback(
      [](FunctionAnalysisManager &analyses) { analyses.registerPass([] { return MeasuredCalls(); }); });
  register_pass_hooks(builder, configuration);
  builder.registerPipelineStartEPCallback(
      [](ModulePassManager &passes, auto...) { passes.addPass(StartOfCompilation()); });
  const auto start = [configuration](ModulePassManager &passes, OptimizationLevel level, auto...) {
    if (level != OptimizationLevel::O0)
      passes.addPass(StartOfPipeline(configuration));
  };
  // The first of them that a pipeline has numbers the calls; ThinLTO's at link time has only the second.
  builder.registerPipelineStartEPCallback(start);
  builder.registerPipelineEarlySimplificationEPCallback(start);
  builder.registerFullLinkTimeOptimizationEarlyEPCallback(
      [](ModulePassManager &passes, auto...) { passes.addPass(StartOfFullLinkTime()); });
  builder.registerFullLinkTimeOptimizationEarlyEPCallback(start);
  const auto end = [](ModulePassManager &passes, auto...) { passes.addPass(EndOfPipeline()); };
  builder.registerOptimizerLastEPCallback(end);
  builder.registerFullLinkTimeOptimizationLastEPCallback(end);
}

} // namespace
} // namespace policybridge::plugin

extern "C" LLVM_ATTRIBUTE_WEAK PassPluginLibraryInfo llvmGetPassPluginInfo() {
  // That the major is wrong was said when the settings were made.
  if (!policybridge::plugin::has_options())
    return {policybridge::plugin::refused_api_version, "policybridge-inliner", LLVM_VERSION_STRING, nullptr};
  return {LLVM_PLUGIN_API_VERSION, "policybridge-inliner", policybridge::plugin::plugin_version(),
          policybridge::plugin::register_callbacks};
}
