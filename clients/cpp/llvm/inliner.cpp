#include "inline_advisor.h"
#include "module_session.h"
#include "settings.h"

#include "llvm/Analysis/InlineAdvisor.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/CommandLine.h"
#if LLVM_VERSION_MAJOR < 22
#include "llvm/Passes/PassPlugin.h"
#else
#include "llvm/Plugins/PassPlugin.h"
#endif

#include <mutex>

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

ModuleSession *session_of(Module &module, FunctionAnalysisManager &functions) {
  if (module.empty())
    return nullptr;
  // The factory of a plugin gets no module analyses; any function's analyses lead to them.
  auto &outer = functions.getResult<ModuleAnalysisManagerFunctionProxy>(*module.begin());
  auto *result = outer.getCachedResult<ModuleSessionAnalysis>(module);
  return result ? result->session.get() : nullptr;
}

InlineAdvisor *make_advisor(Module &module, FunctionAnalysisManager &functions, InlineParams parameters,
                            InlineContext context) {
  ModuleSession *session = is_call_graph_inliner(context) ? session_of(module, functions) : nullptr;
  if (!session || !session->has_policy())
    return new DefaultInlineAdvisor(module, functions, parameters, context);
  lift_growth_limit();
  return make_inline_advisor(module, functions, parameters, context, *session).release();
}

/// Makes LLVM use the advisor of this plugin. LLVM runs this analysis before it makes an advisor, so the session begins
/// here. LLVM finds it by the name and the result of its base class.
struct AdvisorAnalysis : PluginInlineAdvisorAnalysis {
  AdvisorAnalysis() : PluginInlineAdvisorAnalysis(make_advisor) {}

  Result run(Module &module, ModuleAnalysisManager &analyses) {
    analyses.getResult<ModuleSessionAnalysis>(module);
    return getResult();
  }
};

std::shared_ptr<const Configuration> configure() {
  auto configuration = std::make_shared<Configuration>();
  if (Error error = configuration->settings.read())
    configuration->invalid = invalid_argument(toString(std::move(error)));
  return configuration;
}

void register_callbacks(PassBuilder &builder) {
  builder.registerAnalysisRegistrationCallback([configuration = configure()](ModuleAnalysisManager &analyses) {
    analyses.registerPass([&] { return ModuleSessionAnalysis(configuration); });
    analyses.registerPass([&] { return AdvisorAnalysis(); });
  });
}

} // namespace
} // namespace policybridge::plugin

extern "C" LLVM_ATTRIBUTE_WEAK PassPluginLibraryInfo llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "policybridge-inliner", LLVM_VERSION_STRING,
          policybridge::plugin::register_callbacks};
}
