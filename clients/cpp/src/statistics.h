#ifndef POLICYBRIDGE_SRC_STATISTICS_H
#define POLICYBRIDGE_SRC_STATISTICS_H

#include "policybridge/session.h"
#include "policybridge/status.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace policybridge {

/// A policy's decisions about the passes of a module's functions.
struct PassStatistics {
  std::uint64_t decisions = 0;
  /// How often the policy advised each alternative, by its name.
  std::map<std::string, std::uint64_t> advice;
  /// Functions that stay as LLVM has them after a failure; they are not among `decisions`.
  std::uint64_t defaults = 0;
};

/// A kind of decisions that the policy leaves to the compiler because of the kind's own scope.
struct KindOutside {
  std::string reason;
  std::uint64_t decisions = 0;
};

/// Counts that are shared. Made in the library: where a compiler's types are unknown (-fno-rtti), a sanitizer refuses them.
std::shared_ptr<RecordCounts> new_records();

/// The policy's decisions in one compilation, over all of its sessions.
struct Statistics {
  Statistics() { latencies.reserve(1 << 12); }

  /// Count one decision of the policy: its integer where the advice is a choice, and the time that it took.
  void count(std::optional<std::int64_t> choice, std::chrono::nanoseconds latency);

  std::optional<PolicyVersion> policy;
  std::vector<std::string> sessions;
  /// Modules whose features LLVM announced.
  std::uint64_t headers = 0;
  std::uint64_t decisions = 0;
  /// How often the policy made each choice.
  std::map<std::int64_t, std::uint64_t> advice;
  /// In nanoseconds, one for each decision; opening a session is not counted.
  std::vector<std::int64_t> latencies;
  /// Decisions that LLVM's own default answered after a failure; they are not among `decisions`.
  std::uint64_t defaults = 0;
  /// Decisions beyond the growth limit, which LLVM's own default answered; they are not among `decisions`.
  std::uint64_t limited = 0;
  /// Kinds of decisions that the policy declares and LLVM does not ask for in the interactive mode.
  std::vector<std::string> not_asked;
  /// The records of its sessions, and of earlier ones; set at their end.
  std::shared_ptr<RecordCounts> records = new_records();
  /// Absent: the policy does not choose passes.
  std::optional<PassStatistics> passes;
  /// By the kind. These decisions are in no other count.
  std::map<std::string, KindOutside> outside;

  /// Count decisions of a kind that is not for this compilation; nothing happens where it is another one.
  void count_outside(const std::string &kind, std::uint64_t count);

  /// Decisions of both kinds: the policy's, and those that LLVM's own default answered after a failure.
  std::uint64_t all_decisions() const { return decisions + (passes ? passes->decisions : 0); }
  std::uint64_t all_defaults() const { return defaults + (passes ? passes->defaults : 0); }

  /// The failure after which the policy no longer decided; Ok where there was none.
  Status failure;
};

/// Why and how a compilation went on without the policy.
struct FallbackReport {
  Status reason;
  /// Decisions that LLVM's own default answered.
  std::uint64_t decisions = 0;
  /// Whether the compiler was ended and run once more without the policy.
  bool restarted = false;
};

/// How a store of tuned decisions applied to one module.
struct StoreReport {
  std::string store;  ///< the file
  std::string module; ///< the module's name in the store
  bool exact = false; ///< whether the module is the one that was tuned, by its digest
  std::uint64_t decisions = 0; ///< of the store for this module
  std::uint64_t applied = 0;   ///< of them; the others were not asked for, or LLVM could not follow them
  std::uint64_t passes = 0;    ///< of those that applied, how many are about a function's passes
};

/// One compilation, as its statistics file describes it.
struct CompilationReport {
  Statistics statistics;
  std::optional<FallbackReport> fallback;
  std::optional<StoreReport> store;
  /// Why the compilation was made to fail; Ok where it was not.
  Status error;
  /// The compiler's exit status, 128 + n where signal n ended it; absent while the compiler still runs.
  std::optional<int> status;
  /// Wall time.
  double seconds = 0;

  /// The statistics file: the same JSON as that of `policybridge run --stats`.
  std::string to_json(std::string_view task, const std::vector<std::string> &command) const;
};

} // namespace policybridge

#endif
