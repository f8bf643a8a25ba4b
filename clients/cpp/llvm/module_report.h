#ifndef POLICYBRIDGE_LLVM_MODULE_REPORT_H
#define POLICYBRIDGE_LLVM_MODULE_REPORT_H

#include "statistics.h"

#include "llvm/Support/Error.h"

#include <cstdint>
#include <optional>
#include <string>

namespace policybridge::plugin {

/// The optimisation of one module, for the ledger and the statistics file.
struct ModuleReport {
  Statistics statistics;
  /// How the store's decisions applied; none without a store.
  std::optional<StoreReport> store;
  /// Calls that LLVM inlined on the policy's advice.
  std::uint64_t inlined = 0;
  /// Whether the failure in `statistics` made the compilation fail.
  bool fatal = false;
  /// Instructions of the module, without debug intrinsics: before the inlining, and at the end of the pipeline.
  std::uint64_t instructions_before = 0;
  std::uint64_t instructions_after = 0;
  /// Wall time between the two.
  double seconds = 0;

  Outcome to_outcome() const;

  /// Write the statistics file as a whole. Its `status` is null, because the compiler goes on after this.
  llvm::Error write(const std::string &path) const;
};

} // namespace policybridge::plugin

#endif
