#pragma once

#include "compiler.h"
#include "policybridge/connection.h"
#include "task.h"

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace policybridge {

/// How to run a compiler under a policy.
struct Config {
  PolicyReference policy;
  /// The same as it was given.
  std::string policy_text;
  /// A store of decisions in the place of a policy and a server; empty for none.
  std::string decisions;
  /// Whether neither a policy nor a store is given: then the project's own store is looked for, see `find_store`.
  bool finds_store = false;
  /// Whether nothing is looked for, and the compiler decides.
  bool is_plain = false;
  /// The folder where the plugins are looked for first; empty for none.
  std::string plugins;
  /// The servers' addresses as they were given.
  std::string server;
  /// Those that this program can reach, each with its scheme, as `connect` takes them.
  std::string reachable;
  /// For servers on TCP.
  Credentials credentials;
  const Task *task = nullptr;
  /// Without advice: whether the compiler's own decision stands in; else the compiler is ended.
  bool falls_back = true;
  /// The path of the statistics file; empty for none.
  std::string stats;
  /// For each wait for the server.
  std::chrono::microseconds timeout = std::chrono::seconds(10);
  /// The factor of a module's size that the policy may add to it; beyond that, LLVM's own decisions stand in. See
  /// `Growth`.
  double growth_limit = 4;
  /// In seconds, how long it is remembered that the server did not answer in time; 0: not at all.
  double retry_after = 60;
  /// For people and trainers to find the session by.
  std::map<std::string, std::string> labels;
  /// For the policy to read.
  std::map<std::string, std::string> options;
  /// How the sessions depart from the policy's best advice; its seed is mixed with the source's name. Absent: not.
  std::optional<Exploration> exploration;
  Evaluate evaluate = Evaluate::Auto;
  /// Whether records are kept on disk that the server has not acknowledged.
  bool spool = true;
  /// The compiler and its arguments.
  Strings command;
};

/// The output and the exit status of the program if it ends without running a compiler.
struct Exit {
  std::string text;
  int status;
};

/// Reads the command line, which is that of `policybridge run`.
std::variant<Config, Exit> parse_arguments(const Strings &words);

/// A number as C writes it by %g.
std::string general(double value);

} // namespace policybridge
