#pragma once

#include <string>
#include <string_view>

namespace policybridge {

/// The compiler cache that started this process: ccache, sccache or buildcache; empty without one, and in a linker. Such
/// a program knows the command line, and not the variables of the environment.
std::string compiler_cache();

/// The variables that name, with colons between them, files whose content belongs to the key of a compiler cache.
inline constexpr const char *extra_files_variables[] = {"CCACHE_EXTRAFILES", "BUILDCACHE_HASH_EXTRA_FILES",
                                                        "SCCACHE_EXTRAFILES"};

/// The one of `extra_files_variables` that a cache reads.
const char *extra_files_of(std::string_view cache);

/// Whether the variable of a cache names this file.
bool is_in_key(std::string_view cache, const std::string &file);

} // namespace policybridge
