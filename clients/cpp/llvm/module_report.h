#ifndef POLICYBRIDGE_LLVM_MODULE_REPORT_H
#define POLICYBRIDGE_LLVM_MODULE_REPORT_H

#include "statistics.h"

#include <cstdint>

namespace policybridge::plugin {

/// The optimisation of one module, for the ledger and the statistics file.
struct ModuleReport {
  Statistics statistics;
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
};

} // namespace policybridge::plugin

#endif
