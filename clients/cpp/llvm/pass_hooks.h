#ifndef POLICYBRIDGE_LLVM_PASS_HOOKS_H
#define POLICYBRIDGE_LLVM_PASS_HOOKS_H

#include "owned_by_module.h"

#include <memory>

namespace llvm {
class PassBuilder;
}

namespace policybridge::plugin {

/// Make LLVM ask a store or a policy about the optional passes of each function, from the end of the inlining to the end
/// of code generation, and run further ones. Does nothing where the settings name neither, and no log of passes.
void register_pass_hooks(llvm::PassBuilder &builder, const std::shared_ptr<const Configuration> &configuration);

} // namespace policybridge::plugin

#endif
