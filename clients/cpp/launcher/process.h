#pragma once

#include "compiler.h"
#include "error.h"
#include "files.h"
#include "signals.h"

#include <optional>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace policybridge {

using Variables = std::vector<std::pair<std::string, std::string>>;

/// How a process is started beside the caller's own surroundings.
struct Setup {
  Variables variables = {};
  /// Where the new process tells its number before it becomes the program; -1 for nowhere.
  int tell = -1;
  /// Its standard output; standard input and error are empty then. -1 for the caller's own streams.
  int output = -1;
};

/// A running program in a group of its own, which ends as a whole: a driver that is killed alone would orphan its cc1.
/// What is still running with its owner's end is ended.
class Process {
public:
  /// A System error where it cannot be started.
  static Result<Process> start(const Words &command, const Signals &signals, const Setup &setup = {});

  Process(Process &&other) noexcept = default;
  Process &operator=(Process &&) = delete;
  ~Process();

  /// Becomes readable when the program has exited.
  int descriptor() const { return descriptor_.get(); }

  /// Waits for the program's end, at most so many milliseconds (-1: for ever); a Signal error where one comes first.
  Failure await(Signals &signals, int timeout = -1) const;

  /// Ends the program and all that it started, as soon as it has put away its temporary files.
  void end() const;

  /// Ends what the program has left running, and gives its status: 128 + n where signal n ended it.
  int reap();

private:
  Process(pid_t number, Descriptor descriptor) : number_(number), descriptor_(std::move(descriptor)) {}

  pid_t number_;
  Descriptor descriptor_;
};

/// Becomes the program. Returns where that is impossible.
Error become(const Words &command);

/// What a program writes to standard output, at most for `timeout` milliseconds; a Signal error where one comes.
Result<std::string> output_of(const Words &command, Signals &signals, int timeout);

} // namespace policybridge
