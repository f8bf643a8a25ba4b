#ifndef POLICYBRIDGE_LLVM_MODULE_NAMES_H
#define POLICYBRIDGE_LLVM_MODULE_NAMES_H

#include <string>

namespace llvm {
class Module;
}

namespace policybridge::plugin {

/// The name of the module's source file; its identifier where a linker made the module.
std::string name_of(const llvm::Module &module);

} // namespace policybridge::plugin

#endif
