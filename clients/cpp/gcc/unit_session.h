#ifndef POLICYBRIDGE_GCC_UNIT_SESSION_H
#define POLICYBRIDGE_GCC_UNIT_SESSION_H

#include "loop.h"
#include "server_session.h"
#include "settings.h"
#include "statistics.h"

#include "policybridge/policybridge.h"

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

namespace policybridge::plugin {

/// The compilation of one translation unit: one session with the server, which opens at the first decision. After a
/// failure GCC's own decisions stand in, and are counted. No function throws.
class UnitSession {
public:
  /// `failure` is why the settings cannot be used, or Ok. `source` is the source file; any bytes. `labels` are those that
  /// a policy's scope is compared with.
  UnitSession(Settings settings, Status failure, std::string source, std::string compiler,
              std::map<std::string, std::string> labels);
  UnitSession(const UnitSession &) = delete;
  UnitSession &operator=(const UnitSession &) = delete;

  /// Decide how many copies of the loop's body GCC shall make; 0: as GCC decides.
  std::size_t decide(const Loop &loop) noexcept;

  /// Note a function's instructions: before its loops are unrolled, and when its code is complete.
  void count_instructions(std::size_t count) noexcept { seen_ += static_cast<double>(count); }
  void count_final_instructions(const std::string &function, std::size_t count) noexcept;

  /// Where the settings do not let GCC's decisions stand in: the failure that has to end the compilation, once.
  /// Else Ok.
  Status take_error() noexcept;

  /// End the session: report to the ledger, the statistics file and standard error.
  void finish() noexcept;

private:
  Status open();
  Result<std::int64_t> ask(const Loop &loop);
  Result<std::size_t> checked(const Loop &loop, std::int64_t advice);
  void fail(Status failure);
  Outcome outcome() const;

  const Settings settings_;
  const std::string source_;
  const std::chrono::steady_clock::time_point begun_;
  ServerSession session_;
  Statistics statistics_;
  std::string function_;                             // the session's context
  std::map<std::string, double> final_instructions_; // of functions about which the policy decided
  double seen_ = 0;                                  // instructions of the functions so far
  double added_ = 0;             // instructions that the policy added to what GCC itself would have made
  std::uint64_t departures_ = 0; // advice that is not GCC's own decision
  bool told_error_ = false;
};

} // namespace policybridge::plugin

#endif
