#ifndef POLICYBRIDGE_LLVM_INLINE_ADVISOR_H
#define POLICYBRIDGE_LLVM_INLINE_ADVISOR_H

#include "call_sites.h"
#include "module_session.h"

#include "llvm/Analysis/InlineAdvisor.h"

#include <memory>

namespace policybridge::plugin {

/// LLVM's machine-learned inline advisor with the policy as its model; LLVM's own code computes the features. Behind them
/// come LLVM's own decision, the site, its caller and callee (hashes that stay the same from one compilation to the next),
/// whether the callee can be called from this module alone, whether callee and caller need not be emitted where nothing
/// uses them, and their instructions. `sites` may be null, where no policy takes their features; it and `session` must
/// outlive the advisor.
std::unique_ptr<llvm::InlineAdvisor> make_inline_advisor(llvm::Module &module, llvm::FunctionAnalysisManager &functions,
                                                         llvm::InlineParams parameters, llvm::InlineContext context,
                                                         CallSites *sites, ModuleSession &session);

} // namespace policybridge::plugin

#endif
