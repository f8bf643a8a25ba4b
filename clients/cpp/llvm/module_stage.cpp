#include "module_stage.h"

#include "call_sites.h"
#include "phases.h"
#include "process_names.h"
#include "source_language.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/Metadata.h"
#include "llvm/IR/Module.h"
#include "llvm/TargetParser/Triple.h"

using namespace llvm;

namespace policybridge::plugin {
namespace {

/// Whether this process is a linker that was told to optimise one module after another: `-flto-jobs=1` to clang. A linker
/// heeds the last such word. The words of a response file are not known.
bool takes_modules_in_turn() {
  bool is_one = false;
  for (const StringRef word : own_command()) {
    if (word.starts_with("@"))
      return false;
    const StringRef name = word.ltrim('-');
    for (const StringRef option : {"thinlto-jobs=", "plugin-opt=jobs=", "thinlto-threads="})
      if (name.starts_with(option))
        is_one = name.drop_front(option.size()) == "1";
  }
  return is_one;
}

/// The language of the module; empty if its source's name does not tell. Not by its debug information, which must not
/// change a decision.
std::string language_of(const Module &module, const std::string &phase) {
  if (is_of_rustc(module))
    return "rust";
  const std::vector<std::string> words = phase == link_phase ? std::vector<std::string>() : own_command();
  return std::string(source_language(module.getSourceFileName(), words));
}

} // namespace

bool is_of_rustc(const Module &module) {
  const NamedMDNode *compilers = module.getNamedMetadata("llvm.ident");
  return compilers && compilers->getNumOperands() && all_of(compilers->operands(), [](const MDNode *compiler) {
    const auto *name = compiler->getNumOperands() ? dyn_cast<MDString>(compiler->getOperand(0)) : nullptr;
    return name && name->getString().starts_with("rustc ");
  });
}

bool is_compilation(Module &module, ModuleAnalysisManager &analyses) {
  const auto *stage = analyses.getCachedResult<OwnedByModule<ModuleStage>>(module);
  return stage && stage->object->is_compilation;
}

bool is_full_lto(Module &module, ModuleAnalysisManager &analyses) {
  const auto *stage = analyses.getCachedResult<OwnedByModule<ModuleStage>>(module);
  return stage && stage->object->is_full_lto;
}

bool is_alone(Module &module, ModuleAnalysisManager &analyses) {
  return is_compilation(module, analyses) || is_full_lto(module, analyses) || takes_modules_in_turn();
}

std::string phase_of(Module &module, ModuleAnalysisManager &analyses) {
  if (!is_compilation(module, analyses))
    return link_phase;
  // clang marks every module that a linker is to optimise.
  return module.getModuleFlag("EnableSplitLTOUnit") ? pre_link_phase : compile_phase;
}

std::map<std::string, std::string> scope_labels(Module &module, ModuleAnalysisManager &analyses) {
  const std::string phase = phase_of(module, analyses), language = language_of(module, phase);
  std::map<std::string, std::string> labels{{"level", level_of(module)},
                                            {"llvm", std::to_string(LLVM_VERSION_MAJOR)},
                                            {"phase", phase},
                                            {"target", Triple(module.getTargetTriple()).getArchName().str()}};
  if (!language.empty())
    labels["language"] = language;
  return labels;
}

} // namespace policybridge::plugin
