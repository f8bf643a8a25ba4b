#pragma once

#include "host.h"

namespace policybridge {

/// Run a compiler with the decisions of a store. With the plugin for the compiler this process becomes the compiler, and
/// this does not return; elsewhere the launcher answers the compiler's questions. Errors as of `run_compiler`.
Result<CompilationReport> run_decided(Config config, const Compiler &compiler, Signals &signals);

} // namespace policybridge
