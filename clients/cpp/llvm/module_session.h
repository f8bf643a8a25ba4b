#ifndef POLICYBRIDGE_LLVM_MODULE_SESSION_H
#define POLICYBRIDGE_LLVM_MODULE_SESSION_H

#include "advisor.h"
#include "module_passes.h"
#include "owned_by_module.h"

#include "llvm/IR/PassManager.h"

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace llvm {
class Module;
}

namespace policybridge::plugin {

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

  /// Whether the policy advises this module's inlining. Where LLVM's own decisions may stand in, the server is tried
  /// before the first decision: where it cannot be reached, LLVM's own advisor takes the whole module.
  bool has_policy();

  /// Decide whether to inline a call, see `Advisor::decide`. Where the settings do not let LLVM's decisions stand in,
  /// missing advice is an error of the compilation.
  bool decide(llvm::ArrayRef<Feature> features, bool own);

  /// Ask the policy about the passes of each function, where inlining has ended.
  void choose_passes();

  /// The passes that the policy chose; null where it keeps LLVM's own everywhere.
  const std::shared_ptr<ModulePasses> &passes() const { return passes_; }

  /// The policy's name, version and digest, for people.
  std::string policy_name();

  /// Whether the policy has made the module grow beyond the limit: from there on LLVM's own decisions stand in.
  bool is_limited() const { return added_ > configuration_->settings.growth_limit * size_; }

  /// Count a decision of LLVM's own because of that.
  void count_limited() { ++advisor_->report().statistics.limited; }

  /// Count an inlined call that the policy advised; `added` instructions that LLVM itself would not have inlined.
  void count_inlined(std::int64_t added) {
    ++advisor_->report().inlined;
    added_ += static_cast<double>(added);
  }

private:
  Status check_phase() const;
  bool is_idle_by_order() const;
  void fail_without_default();
  std::function<void()> statistics_writer() const;

  llvm::Module &module_;
  llvm::ModuleAnalysisManager &analyses_;
  std::shared_ptr<const Configuration> configuration_;
  std::string phase_; // see phases.h
  std::unique_ptr<Advisor> advisor_;
  std::shared_ptr<ModulePasses> passes_;
  double size_ = 0;  // of the module before the inlining, in instructions
  double added_ = 0; // instructions of callees that the policy inlined, and LLVM would not
  std::chrono::steady_clock::time_point begun_;
};

} // namespace policybridge::plugin

#endif
