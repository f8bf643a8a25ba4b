#pragma once

#include "arguments.h"
#include "statistics.h"

namespace policybridge {

/// Runs a compiler whose decisions a policy makes, and gives the report, also where there was no advice. An error is
/// one of the command (Policy), of the system, or a signal.
Result<Report> run_compiler(const Config &config, const Compiler &compiler, Signals &signals);

/// Runs a compiler that asks nothing, for its report.
Result<Report> run_plain(const Compiler &compiler, Signals &signals);

} // namespace policybridge
