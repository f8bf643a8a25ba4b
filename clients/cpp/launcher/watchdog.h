#pragma once

#include "error.h"
#include "files.h"

#include <string>
#include <sys/types.h>

namespace policybridge {

/// A process that ends the compiler's group and removes the channel's folder if the launcher is killed, and so cannot
/// do it itself: LLVM would wait or spin for ever. It runs from before the compiler starts.
class Watchdog {
public:
  /// A System error where it cannot be started.
  static Result<Watchdog> start(const std::string &folder);

  Watchdog(Watchdog &&other) noexcept;
  Watchdog &operator=(Watchdog &&) = delete;
  ~Watchdog();

  /// Where the compiler tells its group's number.
  int group() const { return line_.get(); }

private:
  Watchdog(pid_t number, Descriptor line) : number_(number), line_(std::move(line)) {}

  pid_t number_;
  Descriptor line_;
};

} // namespace policybridge
