#pragma once

#include "policybridge/status.h"
#include "process.h"
#include "signals.h"

namespace policybridge {

/// The LLVM major version of the compiler that the words `start` start; 0 where it does not print one. Cancelled: a
/// signal came.
///
/// Running `--version` takes 10 to 90 ms, for each file of a build. So the answer is stored in the user's cache folder
/// under the compiler's path, size and time of change; `policybridge run` shares that cache.
Result<int> llvm_version(const Strings &start, Signals &signals);

} // namespace policybridge
