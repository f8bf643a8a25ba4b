#pragma once

#include <string>

namespace policybridge {

/// The compiler cache that started this process: ccache, sccache or buildcache; empty without one. Such
/// a program knows the command line, and not the variables of the environment.
std::string compiler_cache();

} // namespace policybridge
