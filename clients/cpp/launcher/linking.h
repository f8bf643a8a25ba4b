#pragma once

#include "arguments.h"
#include "compiler.h"
#include "signals.h"

namespace policybridge {

/// Whether a command surely links with LTO, so that a linker optimises the modules of the program.
bool links_with_lto(const Compiler &compiler);

/// Add the plugin to the linker of a command that `links_with_lto`, with the policy or the store, and become the compiler.
/// If the linker loads no such plugin, one line says so, and the command runs unchanged. Returns only if the compiler
/// cannot be started, or a signal came.
Status become_linking(const Config &config, const Compiler &compiler, Signals &signals);

} // namespace policybridge
