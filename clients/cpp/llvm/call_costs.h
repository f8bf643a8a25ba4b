#ifndef POLICYBRIDGE_LLVM_CALL_COSTS_H
#define POLICYBRIDGE_LLVM_CALL_COSTS_H

#include "llvm/Analysis/InlineCost.h"
#include "llvm/IR/PassManager.h"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace policybridge::plugin {

/// What LLVM measures of a call (llvm/lib/Analysis/InlineCost.cpp); nothing where the call cannot be inlined.
struct CallCosts {
  std::optional<int> estimate;
  std::optional<llvm::InlineCostFeatures> features;
};

/// The analysis that keeps the costs of calls to a function while it stays as it is. Half of all calls repeat an earlier
/// one as far as LLVM's measuring goes.
class MeasuredCalls : public llvm::AnalysisInfoMixin<MeasuredCalls> {
public:
  /// The properties of a call that LLVM's measuring depends on, beside the callee's body.
  using Circumstances = std::vector<std::uint64_t>;

  struct Result {
    bool is_plain; ///< whether the target asks for no other property of a call
    std::map<Circumstances, CallCosts> costs;
  };

  Result run(llvm::Function &function, llvm::FunctionAnalysisManager &analyses);

private:
  friend llvm::AnalysisInfoMixin<MeasuredCalls>;
  static inline llvm::AnalysisKey Key;
};

/// The costs of a call, measured unless those of an equal one are kept. Whether the estimate is wanted may not change.
CallCosts costs_of(llvm::CallBase &call, llvm::FunctionAnalysisManager &analyses, bool estimates);

/// Forget the costs of calls to a function in which something may be inlined next: LLVM invalidates its analyses later.
void forget_costs(llvm::Function &function, llvm::FunctionAnalysisManager &analyses);

} // namespace policybridge::plugin

#endif
