#pragma once

#include "process.h"

namespace policybridge {

/// The arguments with the words of response files (`@FILE`) in their place, as clang reads them on Unix. A file that
/// cannot be read, or that names itself, stays a word, and so does a pipe.
Strings expanded(const Strings &arguments);

} // namespace policybridge
