#pragma once

#include "files.h"

#include <csignal>
#include <optional>

namespace policybridge {

/// Takes SIGINT, SIGTERM and SIGHUP, which ask to stop, as something to poll for; those that are ignored stay so.
/// Nothing is interrupted anywhere, so that no process and no folder is lost on the way.
class Signals {
public:
  Signals();
  Signals(const Signals &) = delete;
  Signals &operator=(const Signals &) = delete;

  /// Becomes readable when one has come.
  int descriptor() const { return descriptor_.get(); }

  /// The one that has come, if any.
  std::optional<int> taken();

  /// Has them as before, in a process that is about to become another program.
  void restore() const;

private:
  sigset_t before_{};
  Descriptor descriptor_;
};

} // namespace policybridge
