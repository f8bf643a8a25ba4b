#pragma once

#include "policybridge/status.h"
#include "process.h"
#include "signals.h"

#include <functional>
#include <string>

namespace policybridge {

/// The LLVM major version of the compiler that the words `start` start; 0 where it does not print one. Cancelled: a
/// signal came.
///
/// Running `--version` takes 10 to 90 ms, for each file of a build. So the answer is stored in the user's cache folder
/// under the compiler's path, size and time of change; `policybridge run` shares that cache.
Result<int> llvm_version(const Strings &start, Signals &signals);

/// What `ask` finds out about the compiler that the words `start` start, stored in the same place; 0 is asked again.
/// `question` tells several facts about one compiler from each other.
Result<int> remembered(const Strings &start, const std::string &question, const std::function<Result<int>()> &ask);

/// The same for a name of small letters, digits, dots and underscores. Empty for another answer, and where none can be
/// stored: then nothing is asked.
std::string remembered_name(const Strings &start, const std::string &question,
                            const std::function<Result<std::string>()> &ask);

} // namespace policybridge
