#include "module_names.h"

#include "llvm/IR/Module.h"

using namespace llvm;

namespace policybridge::plugin {
std::string name_of(const Module &module) {
  return module.getSourceFileName().empty() ? module.getModuleIdentifier() : module.getSourceFileName();
}

} // namespace policybridge::plugin
