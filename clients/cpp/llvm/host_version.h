#ifndef POLICYBRIDGE_LLVM_HOST_VERSION_H
#define POLICYBRIDGE_LLVM_HOST_VERSION_H

#include "llvm/Config/llvm-config.h"

#include <cstdio>

/// Of LLVM's C interface, whose binary form stays the same. Absent in a program without it.
extern "C" __attribute__((weak)) void LLVMGetVersion(unsigned *major, unsigned *minor, unsigned *patch);

namespace policybridge::plugin {

/// The version in `PassPluginLibraryInfo` that makes every LLVM refuse a plugin.
inline constexpr unsigned refused_api_version = 0;

/// Whether the program that loads this plugin has the LLVM major that the plugin was built for; says so where not.
///
/// The first thing that a plugin calls: LLVM's C++ interface differs between majors, so that each other call may crash.
inline bool is_right_host(const char *plugin) {
  unsigned major = LLVM_VERSION_MAJOR, minor = 0, patch = 0;
  if (LLVMGetVersion)
    LLVMGetVersion(&major, &minor, &patch);
  if (major == LLVM_VERSION_MAJOR)
    return true;
  (void)std::fprintf(stderr, "policybridge: %s-%d is a plugin for LLVM %d, and this compiler has LLVM %u; use %s-%u\n",
                     plugin, LLVM_VERSION_MAJOR, LLVM_VERSION_MAJOR, major, plugin, major);
  return false;
}

} // namespace policybridge::plugin

#endif
