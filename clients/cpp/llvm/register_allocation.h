#ifndef POLICYBRIDGE_LLVM_REGISTER_ALLOCATION_H
#define POLICYBRIDGE_LLVM_REGISTER_ALLOCATION_H

namespace llvm {
class Module;
} // namespace llvm

namespace policybridge::plugin {

/// Let the functions that `PassGate` names have LLVM's basic allocator (lib/CodeGen/RegAllocBasic.cpp) in the code
/// generation that this process begins next, which is the module's; all others have the greedy one.
///
/// LLVM stays as it is where the default of its code generation may be another: for other targets than x86-64, rustc's
/// modules, which have levels of their own, a linker told to generate code without optimisation or in several threads, and
/// where the command line has options about the allocator.
void choose_allocators(const llvm::Module &module);

/// Let LLVM's own allocator have all functions again.
void choose_no_allocators();

} // namespace policybridge::plugin

#endif
