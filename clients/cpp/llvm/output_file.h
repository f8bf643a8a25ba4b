#ifndef POLICYBRIDGE_LLVM_OUTPUT_FILE_H
#define POLICYBRIDGE_LLVM_OUTPUT_FILE_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Error.h"

#include <string>

namespace llvm {
class raw_ostream;
}

namespace policybridge::plugin {

/// Write a file as a whole, and replace the one that is there. Through a device (/dev/stderr leads to one), a pipe or a
/// link it is written, and none of these is replaced.
llvm::Error write_output(const std::string &path, llvm::function_ref<llvm::Error(llvm::raw_ostream &)> write);

} // namespace policybridge::plugin

#endif
