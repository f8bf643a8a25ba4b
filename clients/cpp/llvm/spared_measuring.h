#ifndef POLICYBRIDGE_LLVM_SPARED_MEASURING_H
#define POLICYBRIDGE_LLVM_SPARED_MEASURING_H

#include "llvm/Analysis/MLInlineAdvisor.h"

namespace policybridge::plugin {

/// LLVM's machine-learned inline advisor, without the measuring that the policy has no use for.
///
/// LLVM walks the callee twice for each decision: for `cost_estimate`, and for its 25 cost features. That is half of
/// the cost of a decision by an embedded policy. A policy that takes neither is spared both walks, one that takes the
/// cost features alone is spared the first. It must not take `node_count` and `edge_count` either, which are private
/// to LLVM's class.
class SparedInlineAdvisor : public llvm::MLInlineAdvisor {
public:
  using MLInlineAdvisor::MLInlineAdvisor;

protected:
  std::unique_ptr<llvm::InlineAdvice> getAdviceImpl(llvm::CallBase &call) override;

private:
  static bool needs_all();
  static bool takes_costs();
  std::unique_ptr<llvm::InlineAdvice> spared_advice(llvm::CallBase &call);
  std::unique_ptr<llvm::InlineAdvice> fixed_advice(llvm::CallBase &call, bool inlines);
  bool measure(llvm::CallBase &call);
  void set_features(llvm::CallBase &call);

  const bool needs_all_ = needs_all();
  const bool takes_costs_ = takes_costs();
};

} // namespace policybridge::plugin

#endif
