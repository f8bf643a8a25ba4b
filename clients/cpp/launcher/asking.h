#pragma once

#include "compiler.h"
#include "defaults.h"
#include "process.h"
#include "task.h"

#include <string>

namespace policybridge {

/// Whether the compiler may ask under this command. False only where it surely never does: nothing is
/// compiled, or nothing is optimised. To be asked nothing costs little, to miss a question would be wrong.
bool may_ask(const Compiler &compiler);

/// LLVM's flags for a channel at `base`.
Words asking_flags(const Task &task, const std::string &base, double growth_limit, const Defaults &defaults);

/// The environment that goes with them; `folder` is the channel's own.
Variables asking_variables(Kind kind, const std::string &folder);

} // namespace policybridge
