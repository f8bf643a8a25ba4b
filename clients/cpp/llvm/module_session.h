#ifndef POLICYBRIDGE_LLVM_MODULE_SESSION_H
#define POLICYBRIDGE_LLVM_MODULE_SESSION_H

#include "asker.h"
#include "settings.h"

#include "llvm/IR/PassManager.h"

#include <chrono>
#include <memory>
#include <string>

namespace llvm {
class Module;
}

namespace policybridge::plugin {

/// The settings, and what is wrong with them.
struct Configuration {
  Settings settings;
  Status invalid;
};

/// One module on its way from inlining to the end of its pipeline, which is when this is destroyed and tells the
/// ledger, the statistics file and standard error what came of it.
class ModuleSession {
public:
  ModuleSession(llvm::Module &module, llvm::ModuleAnalysisManager &analyses,
                std::shared_ptr<const Configuration> configuration);
  ~ModuleSession();
  ModuleSession(const ModuleSession &) = delete;
  ModuleSession &operator=(const ModuleSession &) = delete;

  llvm::ModuleAnalysisManager &analyses() { return analyses_; }

  /// Whether there is anybody to ask. Where LLVM's own decisions may stand in, that is found out before the first
  /// decision, so that without a server LLVM's own advisor does all.
  bool can_ask();

  /// Decide whether to inline a call, see `Asker::decide`. Where the settings want no default to stand in, missing
  /// advice is an error of the compilation.
  bool decide(llvm::ArrayRef<Feature> features);

  /// Count an inlined call that the policy advised.
  void count_inlined() { ++asker_.statistics().inlined; }

private:
  void fail_where_wanted();
  void write_statistics();

  llvm::Module &module_;
  llvm::ModuleAnalysisManager &analyses_;
  std::shared_ptr<const Configuration> configuration_;
  Asker asker_;
  std::chrono::steady_clock::time_point begun_;
};

/// Keeps a module's session for as long as the pipeline lasts.
class ModuleSessionAnalysis : public llvm::AnalysisInfoMixin<ModuleSessionAnalysis> {
public:
  struct Result {
    std::unique_ptr<ModuleSession> session;

    /// No change of the module makes it another session.
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
