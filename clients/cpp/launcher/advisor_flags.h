#pragma once

#include "compiler.h"
#include "defaults.h"
#include "process.h"
#include "task.h"

#include <string>

namespace policybridge {

/// Whether the compiler may request advice under this command. False only where it surely does not: nothing is
/// compiled, or nothing is optimised. A wrong true costs a few milliseconds; a wrong false would lose decisions.
bool may_request_advice(const Compiler &compiler);

/// LLVM's flags that connect its advisor to a channel at `base`.
Strings advisor_flags(const Task &task, const std::string &base, double growth_limit, const Defaults &defaults);

/// The environment variables that go with the flags; `folder` is the channel's own.
Variables advisor_environment(CompilerKind kind, const std::string &folder);

} // namespace policybridge
