#ifndef POLICYBRIDGE_LLVM_STORE_ADVISOR_H
#define POLICYBRIDGE_LLVM_STORE_ADVISOR_H

#include "store_session.h"

#include "llvm/Analysis/InlineAdvisor.h"

#include <memory>

namespace policybridge::plugin {

/// LLVM's own inline advisor, but for the decisions of a store where LLVM could follow them. It computes nothing that
/// LLVM's own does not, so that an empty store gives the object of a plain compilation. `session` must outlive the advisor.
std::unique_ptr<llvm::InlineAdvisor> make_store_advisor(llvm::Module &module, llvm::FunctionAnalysisManager &functions,
                                                        const llvm::InlineParams &parameters,
                                                        llvm::InlineContext context, StoreSession &session);

} // namespace policybridge::plugin

#endif
