#pragma once

#include "statistics.h"
#include "wire.h"

namespace policybridge {

/// The labels of the compilation's sessions: how to repeat it, and the user's own.
Labels session_labels(const Config &config);

/// Tells the ledger what a compilation came to, if there is one and it can be reached; nothing depends on it, and the
/// only error is a Signal.
Failure report_outcome(const Report &told, const Config &config, Patience patience);

} // namespace policybridge
