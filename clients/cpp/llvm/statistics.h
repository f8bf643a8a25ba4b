#ifndef POLICYBRIDGE_LLVM_STATISTICS_H
#define POLICYBRIDGE_LLVM_STATISTICS_H

#include "policybridge/policybridge.h"

#include "llvm/Support/Error.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace policybridge::plugin {

/// What the optimisation of one module came to.
struct Statistics {
  /// Who answered, where a session was opened.
  std::optional<SessionInfo> session;
  /// How often the policy left the call, and how often it inlined it.
  std::uint64_t advice[2] = {0, 0};
  /// Decisions that were LLVM's own after a failure.
  std::uint64_t defaults = 0;
  /// Advice to inline that LLVM could follow.
  std::uint64_t inlined = 0;
  /// Nanoseconds for each answer of the policy; the opening of the session is not counted.
  std::vector<std::uint64_t> latencies;
  /// What ended the asking; Ok where nothing did.
  Status failure;
  /// Whether the failure failed the compilation.
  bool fatal = false;
  /// Instructions of the module, debug intrinsics not counted: where inlining began, and where its pipeline ended.
  std::uint64_t instructions_before = 0;
  std::uint64_t instructions_after = 0;
  /// Wall time between the two.
  double seconds = 0;

  std::uint64_t decisions() const { return advice[0] + advice[1]; }

  /// What the ledger is told.
  Outcome to_outcome() const;

  /// Write the file that `policybridge run --stats` writes, at once and never a part of it. `status` is null in it,
  /// because the compiler goes on after this.
  llvm::Error write(const std::string &path) const;
};

} // namespace policybridge::plugin

#endif
