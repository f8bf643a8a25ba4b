#pragma once

#include "compiler.h"
#include "signals.h"

#include <string>

namespace policybridge {

/// Whether the linker that a clang command starts loads a plugin of LLVM's passes. Cancelled: a signal came.
///
/// It is tried once by linking an empty module, and remembered for the linker's file, the plugin and the options that
/// choose the linker. A linker that is a script is tried each time, because it may start another linker the next time.
Result<bool> linker_loads(const Compiler &compiler, const std::string &plugin, Signals &signals);

} // namespace policybridge
