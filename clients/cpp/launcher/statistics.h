#pragma once

#include "arguments.h"
#include "error.h"
#include "session.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace policybridge {

/// Exit status where the host ended a compiler that it had no advice for: EX_SOFTWARE.
constexpr int failed_status = 70;

/// Counts of one compilation, over all sessions that it took.
struct Statistics {
  Statistics() { latencies.reserve(1 << 12); }

  /// Counts one decision of the policy: its integer where it is a choice, and the nanoseconds that it took.
  void count(std::optional<std::int64_t> choice, std::int64_t nanoseconds);

  std::optional<PolicyVersion> policy;
  std::vector<std::string> sessions;
  std::int64_t headers = 0;
  std::int64_t decisions = 0;
  std::map<std::int64_t, std::int64_t> advice;
  std::vector<std::int64_t> latencies;
  /// Decisions answered with LLVM's own default after a failure; not among `decisions`.
  std::int64_t defaults = 0;
  Failure failure;
};

/// Why and how the compilation went on without the policy.
struct Fallback {
  std::string reason;
  int status;
  /// How many decisions LLVM's own default answered.
  std::int64_t decisions = 0;
  /// Whether the compiler was ended and run once more without asking.
  bool restarted = false;
};

/// The end of one compilation.
struct Report {
  /// The compiler's exit status, 128 + n where signal n ended it; `failed_status` where the host ended it.
  int status = 0;
  double seconds = 0;
  Statistics statistics;
  std::optional<Fallback> fallback;
  /// Why the host ended the compiler.
  Failure error;
};

/// Writes the statistics file of `policybridge run`, at once; `%p` in its name becomes this process's id.
Failure write_report(const Report &report, const Config &config);

/// A number as C writes it by %g.
std::string general(double value);

} // namespace policybridge
