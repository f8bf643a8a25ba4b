#pragma once

#include "arguments.h"
#include "compiler.h"
#include "policybridge/session.h"
#include "signals.h"
#include "statistics.h"

#include <map>
#include <memory>
#include <string>

namespace policybridge {

/// The labels of the compilation's sessions: how to repeat the compilation, those of a scope, and the user's own labels,
/// which win. `llvm`: the compiler's major version; 0 where it is not known.
std::map<std::string, std::string> session_labels(const Config &config, const Compiler &compiler, int llvm,
                                                  Signals &signals);

/// Report the compilation's outcome to the ledger, for each of its sessions. `open` is the last of them, and ends; null:
/// none is open. A server without a ledger, or one that cannot be reached, changes nothing. Cancelled: a signal came.
Status report_outcome(const CompilationReport &report, const Config &config, Signals &signals,
                      std::unique_ptr<Session> open);

} // namespace policybridge
