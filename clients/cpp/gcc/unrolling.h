#ifndef POLICYBRIDGE_GCC_UNROLLING_H
#define POLICYBRIDGE_GCC_UNROLLING_H

#include "loop.h"

typedef class loop *loop_p; // as in cfgloop.h

namespace policybridge::plugin {

/// What GCC's pass loop2_unroll (gcc/loop-unroll.cc) makes of a loop: by itself, and of each advice.
struct Unrolling {
  /// The copies of the body that GCC itself makes; 1: it leaves the loop.
  std::size_t own = 1;
  /// 1 for each number of copies that GCC makes where it is told to.
  Mask mask{};

  /// Whether GCC could make anything but `own`.
  bool has_choice() const;
};

/// Find it out for an innermost loop that can be copied. GCC's analysis of the loop has to be there
/// (`get_simple_loop_desc`).
Unrolling unrolling_of(loop_p loop);

} // namespace policybridge::plugin

#endif
