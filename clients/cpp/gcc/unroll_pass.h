#ifndef POLICYBRIDGE_GCC_UNROLL_PASS_H
#define POLICYBRIDGE_GCC_UNROLL_PASS_H

#include "unit_session.h"

class rtl_opt_pass; // GCC's

namespace policybridge::plugin {

/// The pass that asks `session` about the innermost loops of each function, and tells GCC's pass loop2_unroll. It runs
/// right before that pass.
rtl_opt_pass *make_unroll_pass(UnitSession &session);

/// The pass that counts the instructions of each function when its code is complete, for the outcome.
rtl_opt_pass *make_counting_pass(UnitSession &session);

} // namespace policybridge::plugin

#endif
