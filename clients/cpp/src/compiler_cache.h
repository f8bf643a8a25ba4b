#pragma once

#include <string>

namespace policybridge {

/// The program that started this process and keeps what it makes: ccache, sccache or buildcache; empty for none. Such
/// a program knows the command line, and not the variables of the environment.
std::string compiler_cache();

} // namespace policybridge
