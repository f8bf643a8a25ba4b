#include "module_stage.h"

#include "call_sites.h"

#include "llvm/IR/Module.h"
#include "llvm/TargetParser/Triple.h"

using namespace llvm;

namespace policybridge::plugin {

bool is_compilation(Module &module, ModuleAnalysisManager &analyses) {
  const auto *stage = analyses.getCachedResult<OwnedByModule<ModuleStage>>(module);
  return stage && stage->object->is_compilation;
}

namespace {

const char *phase_of(Module &module, ModuleAnalysisManager &analyses) {
  if (!is_compilation(module, analyses))
    return "link";
  // clang marks every module that a linker is to optimise.
  return module.getModuleFlag("EnableSplitLTOUnit") ? "pre-link" : "compile";
}

} // namespace

std::map<std::string, std::string> scope_labels(Module &module, ModuleAnalysisManager &analyses) {
  return {{"level", level_of(module)},
          {"phase", phase_of(module, analyses)},
          {"target", Triple(module.getTargetTriple()).getArchName().str()}};
}

} // namespace policybridge::plugin
