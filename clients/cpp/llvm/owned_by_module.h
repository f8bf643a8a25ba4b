#ifndef POLICYBRIDGE_LLVM_OWNED_BY_MODULE_H
#define POLICYBRIDGE_LLVM_OWNED_BY_MODULE_H

#include "settings.h"

#include "decision_store.h"

#include "policybridge/status.h"

#include "llvm/IR/PassManager.h"

#include <memory>
#include <optional>

namespace policybridge::plugin {

/// The settings, and the error in them or in their store if there is one.
struct Configuration {
  Settings settings;
  Status invalid;
  std::optional<DecisionStore> store;
};

/// The analysis that makes an object of a module when it is first wanted, and owns it until the pipeline ends.
template <class Object> class OwnedByModule : public llvm::AnalysisInfoMixin<OwnedByModule<Object>> {
public:
  struct Result {
    std::unique_ptr<Object> object;

    /// The object stays the same, however the module changes.
    bool invalidate(llvm::Module &, const llvm::PreservedAnalyses &, llvm::ModuleAnalysisManager::Invalidator &) {
      return false;
    }
  };

  explicit OwnedByModule(std::shared_ptr<const Configuration> configuration)
      : configuration_(std::move(configuration)) {}

  Result run(llvm::Module &module, llvm::ModuleAnalysisManager &analyses) {
    return {std::make_unique<Object>(module, analyses, configuration_)};
  }

private:
  friend llvm::AnalysisInfoMixin<OwnedByModule<Object>>;
  static inline llvm::AnalysisKey Key;

  std::shared_ptr<const Configuration> configuration_;
};

} // namespace policybridge::plugin

#endif
