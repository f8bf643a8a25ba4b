#ifndef POLICYBRIDGE_LLVM_CACHE_KEY_H
#define POLICYBRIDGE_LLVM_CACHE_KEY_H

#include "policybridge/status.h"

#include <string>

namespace policybridge::plugin {

/// The error of something that must not be under a compiler cache, which would keep the wrong object.
Status refused_under(const std::string &cache, const std::string &why);

/// Check that the content of `file` is in the key of the compiler cache, see `extra_files_of`. `what` says what may
/// change in the file.
Status check_in_key(const std::string &cache, const std::string &file, const std::string &what);

} // namespace policybridge::plugin

#endif
