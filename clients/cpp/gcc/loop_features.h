#ifndef POLICYBRIDGE_GCC_LOOP_FEATURES_H
#define POLICYBRIDGE_GCC_LOOP_FEATURES_H

#include "loop.h"

typedef class loop *loop_p; // as in cfgloop.h
struct function; // GCC's

namespace policybridge::plugin {

/// The function's name for the assembler.
std::string name_of(const ::function *function);

/// Its instructions, without debug information.
std::size_t instructions_of(const ::function *function);

/// Describe an innermost loop. The site's numbers and `unrolling_default` are left at 0.
Loop describe(loop_p loop, const ::function *function);

} // namespace policybridge::plugin

#endif
