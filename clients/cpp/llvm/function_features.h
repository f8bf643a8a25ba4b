#ifndef POLICYBRIDGE_LLVM_FUNCTION_FEATURES_H
#define POLICYBRIDGE_LLVM_FUNCTION_FEATURES_H

#include "advisor.h"

#include <vector>

namespace llvm {
class Function;
} // namespace llvm

namespace policybridge::plugin {

/// The features of a function for a policy that chooses its passes: each one int64. docs/passes.md lists them.
std::vector<Feature> function_features(llvm::Function &function);

} // namespace policybridge::plugin

#endif
