#pragma once

#include "arguments.h"
#include "compiler.h"
#include "signals.h"
#include "statistics.h"

#include <map>
#include <string>

namespace policybridge {

/// The labels of the compilation's sessions: how to repeat the compilation, those of a scope, and the user's own labels,
/// which win.
std::map<std::string, std::string> session_labels(const Config &config, const Compiler &compiler);

/// Report the compilation's outcome to the ledger, for each of its sessions. A server without a ledger, or one that
/// cannot be reached, changes nothing. Cancelled: a signal came.
Status report_outcome(const CompilationReport &report, const Config &config, Signals &signals);

} // namespace policybridge
