#pragma once

#include "compiler.h"

#include <string>
#include <string_view>

namespace policybridge {

/// Whether the next word is the option's value. The value of an option that is not known here is taken for an input.
bool takes_value(std::string_view option);

/// The sources that the arguments of a compiler name.
Strings sources_of(const Strings &arguments);

/// The one source that the arguments of a compiler name; empty where there is none, or where there are several.
std::string source_of(const Strings &arguments);

/// The file that the compiler writes: that behind `-o`, or the one that clang makes without it; empty where the command
/// does not tell one file.
std::string output_of(const Compiler &compiler);

} // namespace policybridge
