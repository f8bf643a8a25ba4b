#pragma once

#include "signals.h"

#include <array>
#include <poll.h>

namespace policybridge {

/// What makes waiting for the server pointless: a signal to the launcher, or the end of the compiler, which then no
/// longer needs the advice.
class Interrupts {
public:
  /// `compiler` becomes readable when the compiler has exited; −1 where there is none.
  explicit Interrupts(Signals &signals, int compiler = -1) : signals_(signals), compiler_(compiler) {}

  /// For `WaitOptions::interrupts`.
  std::array<int, 2> descriptors() const { return {signals_.descriptor(), compiler_}; }

  bool compiler_ended() const {
    pollfd compiler = {compiler_, POLLIN, 0};
    return poll(&compiler, 1, 0) > 0;
  }

  bool raised() { return signals_.received() || compiler_ended(); }

private:
  Signals &signals_;
  int compiler_;
};

} // namespace policybridge
