#pragma once

#include "compiler.h"
#include "signals.h"

#include <string>

namespace policybridge {

/// From this LLVM major on, clang reads the options of a plugin after it has loaded the plugin.
inline constexpr int first_major_that_reads_late = 22;

/// The inliner's plugin for a compiler of this LLVM major; empty where there is none that it loads. Cancelled: a signal
/// came.
///
/// Looked into are `folder` (unless empty), those of POLICYBRIDGE_PLUGINS, those beside this program into which no other
/// user may write, and where CMake installs. Whether the compiler loads the plugin is tried once and remembered, because
/// a clang that is not linked as the plugin's LLVM cannot.
Result<std::string> find_plugin(const Compiler &compiler, int major, const std::string &folder, Signals &signals);

} // namespace policybridge
