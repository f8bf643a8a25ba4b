#ifndef POLICYBRIDGE_LLVM_MODULE_SESSION_H
#define POLICYBRIDGE_LLVM_MODULE_SESSION_H

#include "advisor.h"
#include "settings.h"

#include "llvm/IR/PassManager.h"

#include <chrono>
#include <memory>
#include <string>

namespace llvm {
class Module;
}

namespace policybridge::plugin {

/// The settings, and the error in them if there is one.
struct Configuration {
  Settings settings;
  Status invalid;
};

/// One module from its inlining to the end of its pipeline. Then this object is destroyed, and reports to the ledger,
/// the statistics file and standard error.
class ModuleSession {
public:
  ModuleSession(llvm::Module &module, llvm::ModuleAnalysisManager &analyses,
                std::shared_ptr<const Configuration> configuration);
  ~ModuleSession();
  ModuleSession(const ModuleSession &) = delete;
  ModuleSession &operator=(const ModuleSession &) = delete;

  llvm::ModuleAnalysisManager &analyses() { return analyses_; }

  /// Whether the policy advises this module. Where LLVM's own decisions may stand in, the server is tried before the
  /// first decision: where it cannot be reached, LLVM's own advisor takes the whole module.
  bool has_policy();

  /// Decide whether to inline a call, see `Advisor::decide`. Where the settings do not let LLVM's decisions stand in,
  /// missing advice is an error of the compilation.
  bool decide(llvm::ArrayRef<Feature> features);

  /// Count an inlined call that the policy advised.
  void count_inlined() { ++advisor_.report().inlined; }

private:
  void fail_without_default();
  void write_statistics();

  llvm::Module &module_;
  llvm::ModuleAnalysisManager &analyses_;
  std::shared_ptr<const Configuration> configuration_;
  Advisor advisor_;
  std::chrono::steady_clock::time_point begun_;
};

/// Owns a module's session until the pipeline ends.
class ModuleSessionAnalysis : public llvm::AnalysisInfoMixin<ModuleSessionAnalysis> {
public:
  struct Result {
    std::unique_ptr<ModuleSession> session;

    /// The session stays the same, however the module changes.
    bool invalidate(llvm::Module &, const llvm::PreservedAnalyses &, llvm::ModuleAnalysisManager::Invalidator &) {
      return false;
    }
  };

  explicit ModuleSessionAnalysis(std::shared_ptr<const Configuration> configuration)
      : configuration_(std::move(configuration)) {}

  Result run(llvm::Module &module, llvm::ModuleAnalysisManager &analyses) {
    return {std::make_unique<ModuleSession>(module, analyses, configuration_)};
  }

private:
  friend llvm::AnalysisInfoMixin<ModuleSessionAnalysis>;
  static llvm::AnalysisKey Key;

  std::shared_ptr<const Configuration> configuration_;
};

} // namespace policybridge::plugin

#endif
