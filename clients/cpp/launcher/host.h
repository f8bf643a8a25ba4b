#pragma once

#include "advisor.h"
#include "arguments.h"
#include "compiler.h"
#include "signals.h"
#include "statistics.h"

namespace policybridge {

/// The exit status where the launcher ended a compiler for want of advice: EX_SOFTWARE.
inline constexpr int failed_status = 70;

/// Run a compiler under a policy. A failure of the policy is in the report. Cancelled: a signal came. NotFound or
/// Internal: a process or file could not be made.
/// `stored` answers in the place of the server, if it is not null.
Result<CompilationReport> run_compiler(const Config &config, const Compiler &compiler, Signals &signals,
                                       StoredDecisions *stored = nullptr);

/// Run a compiler without a policy; errors as above. Where no process can be made, this process becomes the compiler.
Result<CompilationReport> run_plain(const Compiler &compiler, Signals &signals);

} // namespace policybridge
