#ifndef POLICYBRIDGE_LLVM_MODULE_STAGE_H
#define POLICYBRIDGE_LLVM_MODULE_STAGE_H

#include "owned_by_module.h"

#include <map>
#include <string>

namespace policybridge::plugin {

/// Where in a build a module is optimised.
struct ModuleStage {
  ModuleStage(llvm::Module &, llvm::ModuleAnalysisManager &, const std::shared_ptr<const Configuration> &) {}

  /// Whether the pipeline is that of a compiler, and not that of a linker.
  bool is_compilation = false;

  /// Whether the pipeline is that of full LTO: a linker's, which merges the modules into this one.
  bool is_full_lto = false;
};

/// Whether rustc made the module, or all modules that it was merged of. Their names have no suffix of a language.
bool is_of_rustc(const llvm::Module &module);

/// Whether a compiler, and not a linker, optimises the module.
bool is_compilation(llvm::Module &module, llvm::ModuleAnalysisManager &analyses);

/// Whether full LTO optimises the module.
bool is_full_lto(llvm::Module &module, llvm::ModuleAnalysisManager &analyses);

/// Whether the process optimises no other module beside this one. ThinLTO optimises several, each in a thread, unless it is
/// told to take one job.
bool is_alone(llvm::Module &module, llvm::ModuleAnalysisManager &analyses);

/// The phase of a module: one of phases.h.
std::string phase_of(llvm::Module &module, llvm::ModuleAnalysisManager &analyses);

/// The labels of a module that a policy's scope is compared with: `level` (Oz, Os, O2), `phase` (compile, pre-link, link),
/// `target` (the architecture of the target triple: x86_64), `llvm` (its major version) and, if known, `language` (see
/// source_language.h).
std::map<std::string, std::string> scope_labels(llvm::Module &module, llvm::ModuleAnalysisManager &analyses);

} // namespace policybridge::plugin

#endif
