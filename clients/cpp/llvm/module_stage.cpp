#include "module_stage.h"

#include "call_sites.h"
#include "phases.h"

#include "llvm/IR/Module.h"
#include "llvm/TargetParser/Triple.h"

using namespace llvm;

namespace policybridge::plugin {

bool is_compilation(Module &module, ModuleAnalysisManager &analyses) {
  const auto *stage = analyses.getCachedResult<OwnedByModule<ModuleStage>>(module);
  return stage && stage->object->is_compilation;
}

bool is_full_lto(Module &module, ModuleAnalysisManager &analyses) {
  const auto *stage = analyses.getCachedResult<OwnedByModule<ModuleStage>>(module);
  return stage && stage->object->is_full_lto;
}

bool is_alone(Module &module, ModuleAnalysisManager &analyses) {
  return is_compilation(module, analyses) || is_full_lto(module, analyses);
}

std::string phase_of(Module &module, ModuleAnalysisManager &analyses) {
  if (!is_compilation(module, analyses))
    return link_phase;
  // clang marks every module that a linker is to optimise.
  return module.getModuleFlag("EnableSplitLTOUnit") ? pre_link_phase : compile_phase;
}

std::map<std::string, std::string> scope_labels(Module &module, ModuleAnalysisManager &analyses) {
  return {{"level", level_of(module)},
          {"phase", phase_of(module, analyses)},
          {"target", Triple(module.getTargetTriple()).getArchName().str()}};
}

} // namespace policybridge::plugin
