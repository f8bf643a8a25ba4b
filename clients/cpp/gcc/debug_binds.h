#ifndef POLICYBRIDGE_GCC_DEBUG_BINDS_H
#define POLICYBRIDGE_GCC_DEBUG_BINDS_H

#include <memory>

struct function; // GCC's

namespace policybridge::plugin {

/// Removes the debug binds of the function's variables, and restores them when destroyed.
///
/// GCC's analysis of a loop (`iv_analysis_loop_init`) computes where registers die (DF_NOTE), and that changes what
/// debug instructions say of a register that is dead there, by new instructions and variables (gcc/valtrack.cc). So -g
/// would give other locations of variables after an analysis that a plain compilation does not make.
class DebugBinds {
public:
  explicit DebugBinds(::function *function);
  ~DebugBinds();
  DebugBinds(const DebugBinds &) = delete;
  DebugBinds &operator=(const DebugBinds &) = delete;

private:
  struct Kept;
  std::unique_ptr<Kept> kept_;
};

} // namespace policybridge::plugin

#endif
