#pragma once

#include "compiler.h"
#include "error.h"
#include "signals.h"

namespace policybridge {

/// The LLVM major version of the compiler that `start` starts, 0 where it does not say; the error is a Signal.
///
/// Asking costs 10 to 90 ms, which a build would pay for each file; so the answer is kept in the user's cache folder
/// under the compiler's path, size and time of change. `policybridge run` keeps its own there, in the same form.
Result<int> llvm_version(const Words &start, Signals &signals);

} // namespace policybridge
