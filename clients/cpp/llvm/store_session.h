#ifndef POLICYBRIDGE_LLVM_STORE_SESSION_H
#define POLICYBRIDGE_LLVM_STORE_SESSION_H

#include "call_sites.h"
#include "module_passes.h"
#include "owned_by_module.h"
#include "site_log.h"

#include "decision_store.h"
#include "statistics.h"

#include <chrono>
#include <memory>
#include <optional>
#include <string>

namespace llvm {
class Module;
}

namespace policybridge::plugin {

/// One module whose inlining is LLVM's own but for the decisions of a store, and is logged if that is asked for: from the
/// start of its pipeline to the end. Then this object is destroyed, and tells how much of the store applied.
class StoreSession {
public:
  StoreSession(llvm::Module &module, llvm::ModuleAnalysisManager &analyses,
               std::shared_ptr<const Configuration> configuration);
  ~StoreSession();
  StoreSession(const StoreSession &) = delete;
  StoreSession &operator=(const StoreSession &) = delete;

  /// Whether the store has decisions for this module, or there is a log: else LLVM needs no advisor of ours.
  bool is_needed() const { return sites_.has_value(); }

  /// The calls by their names; only where `is_needed`.
  CallSites &sites() { return *sites_; }

  /// The store's decision about a site; none where LLVM's own stands.
  std::optional<bool> find(const Site &site) const;

  /// The choices of the store about the functions' passes, and their log; null where there are neither.
  const std::shared_ptr<ModulePasses> &passes() const { return passes_; }

  /// Count a decision of the store that was followed.
  void count_applied() { ++report_.applied; }

  /// Whether the store has made the module grow beyond the limit (`Settings::growth_limit`).
  bool is_limited() const { return added_ > configuration_->settings.growth_limit * size_; }

  /// Count an inlined call that LLVM itself would not have inlined, of a callee with `instructions` instructions.
  void count_added(std::size_t instructions) { added_ += static_cast<double>(instructions); }

  /// The log; none where it is not asked for.
  SiteLog *log() { return log_ ? &*log_ : nullptr; }

private:
  Status find_own_store();
  Status read_store();
  std::unique_ptr<PassLog> open_pass_log() const;
  void fail(const Status &why);
  void tell() const;
  void write_log();
  void write_statistics();

  llvm::Module &module_;
  std::shared_ptr<const Configuration> configuration_;
  std::optional<DecisionStore> found_; // the project's own, where none is given
  const DecisionStore *store_ = nullptr;
  std::string phase_; // see phases.h
  CompiledModule compiled_;
  std::string tuned_with_; // the LLVM of the section, if it is another
  SectionDecisions decisions_;
  bool is_own_section_ = false; // not that of another file of the same name
  std::optional<CallSites> sites_;
  std::optional<SiteLog> log_;
  std::shared_ptr<ModulePasses> passes_;
  StoreReport report_;
  Status failure_;
  bool fatal_ = false;
  double size_ = 0;  // of the module, in instructions
  double added_ = 0; // instructions of callees that the store inlined, and LLVM would not
  std::chrono::steady_clock::time_point begun_;
};

} // namespace policybridge::plugin

#endif
