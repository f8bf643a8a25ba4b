#ifndef POLICYBRIDGE_LLVM_SPARED_MEASURING_H
#define POLICYBRIDGE_LLVM_SPARED_MEASURING_H

#include "llvm/Analysis/MLInlineAdvisor.h"

namespace policybridge::plugin {

/// LLVM's machine-learned inline advisor, without the measuring that gives nothing new.
///
/// LLVM walks the callee twice for each decision: for `cost_estimate`, and for its 25 cost features. That is half of
/// the cost of a decision by an embedded policy. A call that is like an earlier one is spared both walks, and every call
/// if the policy takes none of these features.
class SparedInlineAdvisor : public llvm::MLInlineAdvisor {
public:
  using MLInlineAdvisor::MLInlineAdvisor;

protected:
  std::unique_ptr<llvm::InlineAdvice> getAdviceImpl(llvm::CallBase &call) override;

private:
  static bool is_left_to_llvm();
  static bool takes_estimate();
  static bool takes_costs();
  std::unique_ptr<llvm::InlineAdvice> spared_advice(llvm::CallBase &call);
  std::unique_ptr<llvm::InlineAdvice> fixed_advice(llvm::CallBase &call, bool inlines);
  bool measure(llvm::CallBase &call, bool is_mandatory);
  void set_features(llvm::CallBase &call);

  const bool is_left_to_llvm_ = is_left_to_llvm();
  const bool takes_estimate_ = takes_estimate();
  const bool takes_costs_ = takes_costs();
};

} // namespace policybridge::plugin

#endif
