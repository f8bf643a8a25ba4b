#pragma once

#include "compiler.h"

#include <string>

namespace policybridge {

/// The one source that the arguments of a compiler name; empty where there is none, or where there are several.
std::string source_of(const Strings &arguments);

/// The file that the compiler writes: that behind `-o`, or the one that clang makes without it; empty where the command
/// does not tell one file.
std::string output_of(const Compiler &compiler);

} // namespace policybridge
