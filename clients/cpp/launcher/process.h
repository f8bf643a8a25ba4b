#pragma once

#include "descriptor.h"
#include "policybridge/status.h"
#include "signals.h"

#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace policybridge {

/// The words of a command line, or a part of them.
using Strings = std::vector<std::string>;

using Variables = std::vector<std::pair<std::string, std::string>>;

/// How a process differs from its parent.
struct ProcessOptions {
  /// Environment variables to set.
  Variables variables = {};
  /// Where the new process writes its number before it becomes the program; −1 for nowhere.
  int number_to = -1;
  /// Its standard output, in which case standard input and error are /dev/null; −1 for the parent's own streams.
  int output = -1;
  /// Whether standard error goes to `output`, too.
  bool with_errors = false;
};

/// A running program in a process group of its own, which is ended as a whole: a driver that is killed alone would
/// leave its cc1 running. The group is ended with this object.
class Process {
public:
  /// Start a program. NotFound or Internal: it cannot be started.
  static Result<Process> start(const Strings &command, const Signals &signals, const ProcessOptions &options = {});

  Process(Process &&other) noexcept = default;
  Process &operator=(Process &&) = delete;
  ~Process();

  /// Becomes readable when the program has exited.
  int descriptor() const { return descriptor_.get(); }

  /// Wait for the program's end for at most `timeout` milliseconds (−1: for ever). Cancelled: a signal came first.
  Status await(Signals &signals, int timeout = -1) const;

  /// End the program and all that it started; they get some time to remove their temporary files.
  void end() const;

  /// Kill the processes that the program left running, and give its exit status: 128 + n if signal n ended it.
  int reap();

private:
  Process(pid_t number, Descriptor descriptor) : number_(number), descriptor_(std::move(descriptor)) {}

  pid_t number_;
  Descriptor descriptor_;
};

/// Write one line to standard error, behind the launcher's name.
void say(const std::string &message);

/// Write a line that tells no failure, unless the command is a trial (`is_trial`).
void remark(const Strings &command, const std::string &message);

/// Become the program. This returns only where the program cannot be started.
Status become(const Strings &command);

/// Give a program's standard output within `timeout` milliseconds, on demand with its standard error. Cancelled: a signal
/// came.
Result<std::string> output_of(const Strings &command, Signals &signals, int timeout, bool with_errors = false);

} // namespace policybridge
