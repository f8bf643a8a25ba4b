#ifndef POLICYBRIDGE_LLVM_INLINE_ADVISOR_H
#define POLICYBRIDGE_LLVM_INLINE_ADVISOR_H

#include "module_session.h"

#include "llvm/Analysis/InlineAdvisor.h"

#include <memory>

namespace policybridge::plugin {

/// LLVM's machine-learned inline advisor with the policy as its model; LLVM's own code computes the features. `session`
/// must outlive the advisor.
std::unique_ptr<llvm::InlineAdvisor> make_inline_advisor(llvm::Module &module, llvm::FunctionAnalysisManager &functions,
                                                         llvm::InlineParams parameters, llvm::InlineContext context,
                                                         ModuleSession &session);

} // namespace policybridge::plugin

#endif
