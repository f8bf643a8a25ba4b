#pragma once

#include "compiler.h"
#include "policybridge/session.h"
#include "task.h"

#include <chrono>
#include <limits>
#include <map>
#include <string>
#include <variant>

namespace policybridge {

/// How to run a compiler under a policy.
struct Config {
  PolicyReference policy;
  /// The path of the server's socket.
  std::string socket;
  const Task *task = nullptr;
  /// Without advice: whether the compiler's own decision stands in; else the compiler is ended.
  bool falls_back = true;
  /// The path of the statistics file; empty for none.
  std::string stats;
  /// For each wait for the server.
  std::chrono::microseconds timeout = std::chrono::seconds(10);
  /// The factor of growth of a module after which LLVM requests no more advice.
  double growth_limit = std::numeric_limits<double>::infinity();
  /// For people and trainers to find the session by.
  std::map<std::string, std::string> labels;
  /// For the policy to read.
  std::map<std::string, std::string> options;
  /// The compiler and its arguments.
  Strings command;
};

/// What the program prints and returns where it ends without running a compiler.
struct Exit {
  std::string text;
  int status;
};

/// Reads the command line, which is that of `policybridge run`.
std::variant<Config, Exit> parse_arguments(const Strings &words);

/// A number as C writes it by %g.
std::string general(double value);

} // namespace policybridge
