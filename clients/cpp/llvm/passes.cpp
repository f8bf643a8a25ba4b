// An example to copy: the policy chooses which passes run on a function, and in which order.
//
// For each function, the policy gets a few of LLVM's properties of the function and a mask of the passes that may run,
// and advises the next pass, until it advises to stop. One module is one session, one function one context.

#include "host_version.h"
#include "loader.h"
#include "policybridge/policybridge.h"

#include "llvm/Analysis/FunctionPropertiesAnalysis.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"
#if LLVM_VERSION_MAJOR < 22
#include "llvm/Passes/PassPlugin.h"
#else
#include "llvm/Plugins/PassPlugin.h"
#endif

#include <iterator>

using namespace llvm;
using policybridge::ModelRunner, policybridge::Status;

namespace {

/// The passes, as `opt -passes=` spells them; the advice is an index into them; the index after the last one means
/// stop.
constexpr const char *pass_names[] = {
    "sroa", "early-cse", "instcombine<no-verify-fixpoint>", "simplifycfg", "reassociate", "gvn", "adce",
    "dse",  "jump-threading"};
constexpr std::size_t stop = std::size(pass_names);
constexpr unsigned most_passes = 20;

/// The features, in this order before the mask.
constexpr std::pair<const char *, std::int64_t FunctionPropertiesInfo::*> properties[] = {
    {"instructions", &FunctionPropertiesInfo::TotalInstructionCount},
    {"basic_blocks", &FunctionPropertiesInfo::BasicBlockCount},
    {"loads", &FunctionPropertiesInfo::LoadInstCount},
    {"stores", &FunctionPropertiesInfo::StoreInstCount},
    {"top_level_loops", &FunctionPropertiesInfo::TopLevelLoopCount},
    {"loop_depth", &FunctionPropertiesInfo::MaxLoopDepth},
};
constexpr std::size_t mask_index = std::size(properties);

std::string environment(const char *name, const char *otherwise) {
  return sys::Process::GetEnv(name).value_or(otherwise);
}

policybridge::Result<std::unique_ptr<ModelRunner>> open_runner() {
  using policybridge::TensorSpec;
  std::vector<TensorSpec> features;
  for (const auto &[name, member] : properties)
    features.push_back(TensorSpec::of<std::int64_t>(name));
  features.push_back(TensorSpec::of<std::int8_t>("mask", {stop + 1}));
  policybridge::ConnectOptions connection;
  connection.schemes = {policybridge::loaded_grpc_scheme, policybridge::loaded_grpcs_scheme};
  return ModelRunner::open(environment("POLICYBRIDGE_SERVER", "socket:policybridge.sock"),
                           environment("POLICYBRIDGE_PASSES_POLICY", "passes"), std::move(features),
                           TensorSpec::of<std::int64_t>("pass"), connection);
}

/// Runs the passes that the policy advises on one module. After a failure, the remaining functions stay as they are,
/// and one line on standard error says so.
class PassSequence : public PassInfoMixin<PassSequence> {
public:
  explicit PassSequence(PassBuilder &builder) {
    for (const char *name : pass_names)
      cantFail(builder.parsePassPipeline(passes_.emplace_back(), name));
  }

  PreservedAnalyses run(Module &module, ModuleAnalysisManager &analyses) {
    auto &functions = analyses.getResult<FunctionAnalysisManagerModuleProxy>(module).getManager();
    auto runner = open_runner();
    if (!runner.ok())
      return say(runner.status()), PreservedAnalyses::all();
    const auto before = static_cast<double>(module.getInstructionCount());
    Status status;
    for (Function &function : module)
      if (!function.isDeclaration() && status.ok())
        status = optimise(function, functions, **runner);
    const auto after = static_cast<double>(module.getInstructionCount());
    if (!status.ok())
      say(status);
    else
      (void)(*runner)->report_outcome({{{"instructions_before", before}, {"instructions_after", after}}, "ok"});
    return PreservedAnalyses::none();
  }

private:
  /// Run the advised passes until the policy stops. A pass that has run is masked until a pass changes the function.
  Status optimise(Function &function, FunctionAnalysisManager &functions, ModelRunner &runner) {
    if (Status status = runner.set_context(function.getName()); !status.ok())
      return status;
    std::int8_t *mask = runner.feature<std::int8_t>(mask_index);
    std::fill_n(mask, stop + 1, std::int8_t{1});
    for (unsigned step = 0; step < most_passes; ++step) {
      observe(functions.getResult<FunctionPropertiesAnalysis>(function), runner);
      const auto advice = runner.evaluate<std::int64_t>();
      if (!advice.ok())
        return advice.status();
      const auto index = static_cast<std::size_t>(*advice);
      if (index == stop)
        return Status();
      if (index > stop || !mask[index])
        return policybridge::internal_error("the policy advises pass " + std::to_string(*advice) + ", which is masked");
      if (!passes_[index].run(function, functions).areAllPreserved())
        std::fill_n(mask, stop, std::int8_t{1});
      mask[index] = 0;
    }
    return Status();
  }

  static void observe(const FunctionPropertiesInfo &info, ModelRunner &runner) {
    for (std::size_t index = 0; index < std::size(properties); ++index)
      *runner.feature<std::int64_t>(index) = info.*properties[index].second;
  }

  static void say(const Status &why) { errs() << "policybridge: passes are left out: " << why.message() << "\n"; }

  std::vector<FunctionPassManager> passes_;
};

void register_callbacks(PassBuilder &builder) {
  // opt -passes=policybridge-passes
  builder.registerPipelineParsingCallback(
      [&builder](StringRef name, ModulePassManager &passes, ArrayRef<PassBuilder::PipelineElement>) {
        if (name != "policybridge-passes")
          return false;
        passes.addPass(PassSequence(builder));
        return true;
      });
  // clang -O1 and above, and opt -passes='default<…>', where a server is named.
  builder.registerOptimizerLastEPCallback([&builder](ModulePassManager &passes, OptimizationLevel level, auto...) {
    if (level != OptimizationLevel::O0 && sys::Process::GetEnv("POLICYBRIDGE_SERVER"))
      passes.addPass(PassSequence(builder));
  });
}

} // namespace

extern "C" LLVM_ATTRIBUTE_WEAK PassPluginLibraryInfo llvmGetPassPluginInfo() {
  if (!policybridge::plugin::is_right_host("policybridge-passes"))
    return {policybridge::plugin::refused_api_version, "policybridge-passes", LLVM_VERSION_STRING, nullptr};
  return {LLVM_PLUGIN_API_VERSION, "policybridge-passes", LLVM_VERSION_STRING, register_callbacks};
}
