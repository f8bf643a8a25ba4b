#pragma once

#include "arguments.h"
#include "compiler.h"
#include "signals.h"
#include "statistics.h"

namespace policybridge {

/// The exit status where the launcher ended a compiler for want of advice: EX_SOFTWARE.
inline constexpr int failed_status = 70;

/// Run a compiler under a policy. A failure of the policy is in the report. Cancelled: a signal came. NotFound or
/// Internal: a process or file could not be made.
Result<CompilationReport> run_compiler(const Config &config, const Compiler &compiler, Signals &signals);

/// Run a compiler without a policy; errors as above.
Result<CompilationReport> run_plain(const Compiler &compiler, Signals &signals);

} // namespace policybridge
