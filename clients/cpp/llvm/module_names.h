#ifndef POLICYBRIDGE_LLVM_MODULE_NAMES_H
#define POLICYBRIDGE_LLVM_MODULE_NAMES_H

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"

#include <string>

namespace llvm {
class Module;
}

namespace policybridge::plugin {

/// The name of the module's source file; its identifier where it has none. The module that full LTO merges all others into
/// has the name of the linker's output.
std::string name_of(const llvm::Module &module);

/// A function's name without what ThinLTO puts behind that of a local function which it exports to other modules, a hash
/// of the module's content: it changes with every edit.
llvm::StringRef lasting_name(llvm::StringRef name);

/// A name as it is in a log: percent-encoded.
std::string encoded(llvm::StringRef name);

/// The names of a module's functions as they outlast edits elsewhere in the program.
///
/// Where full LTO merges modules, it puts numbers behind the names of local functions that are equal. They count all
/// such names of the program; here they count those of the same name, in the order of linking.
class LastingNames {
public:
  explicit LastingNames(const llvm::Module &module);

  /// The lasting name of the function `name`. Valid as long as `name` and this object.
  llvm::StringRef of(llvm::StringRef name) const;

private:
  llvm::StringMap<std::string> renamed_;
};

} // namespace policybridge::plugin

#endif
