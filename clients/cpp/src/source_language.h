#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace policybridge {

/// The language of a source: `c`, `c++`, `objective-c`, `objective-c++` or `rust`; empty for another.
///
/// @param source   the file's name.
/// @param command  that compiles it, with the driver's name first. If it has the word `source`, its `-x` counts, and
///                 that a driver for C++ takes C for C++. The last such word counts: others are values of options.
std::string_view source_language(std::string_view source, const std::vector<std::string> &command);

/// Whether `-x name` makes clang compile its inputs.
bool is_language(std::string_view name);

} // namespace policybridge
