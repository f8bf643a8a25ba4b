#pragma once

#include "compiler.h"
#include "signals.h"

#include <string>

namespace policybridge {

/// The architecture of the triple that clang compiles this command for, such as x86_64, as modules and so the plugins have
/// it. Empty where it is not known: of other compilers, beside a response or configuration file, and of a compiler whose
/// answer cannot be stored, because asking takes 20 ms.
std::string target_of(const Compiler &compiler, Signals &signals);

} // namespace policybridge
