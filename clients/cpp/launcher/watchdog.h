#pragma once

#include "descriptor.h"
#include "policybridge/status.h"

#include <string>
#include <sys/types.h>

namespace policybridge {

/// A process that cleans up if the launcher is killed: it ends the compiler's process group, because LLVM would wait or
/// loop for ever, and removes the channel's folder. It starts before the compiler.
class Watchdog {
public:
  static Result<Watchdog> start(const std::string &folder);

  Watchdog(Watchdog &&other) noexcept;
  Watchdog &operator=(Watchdog &&) = delete;
  ~Watchdog();

  /// The descriptor to which the compiler writes the number of its process group.
  int group_descriptor() const { return line_.get(); }

private:
  Watchdog(pid_t number, Descriptor line) : number_(number), line_(std::move(line)) {}

  pid_t number_;
  Descriptor line_;
};

} // namespace policybridge
