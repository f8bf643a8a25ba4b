#pragma once

#include "compiler.h"
#include "task.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace policybridge {

using Labels = std::vector<std::pair<std::string, std::string>>;

/// Which policy is asked for: by version, by alias, or by neither for the newest.
struct PolicyReference {
  std::string name;
  std::optional<std::int64_t> version;
  std::string alias;

  /// Reads NAME, NAME@VERSION or NAME@ALIAS.
  static PolicyReference parse(std::string_view text);
};

/// How a compiler is hosted.
struct Config {
  PolicyReference policy;
  /// The path of the server's socket.
  std::string socket;
  const Task *task = nullptr;
  /// Without advice: the compiler's own decision, or the compiler is ended.
  bool falls_back = true;
  /// Where the statistics go; empty for nowhere.
  std::string stats;
  /// Seconds, for each wait for the server.
  double timeout = 10;
  /// The factor of growth after which LLVM stops asking.
  double growth_limit = std::numeric_limits<double>::infinity();
  Labels labels;
  Labels options;
  /// The compiler and its arguments.
  Words command;
};

/// What the program ends with before it has begun: something to print, and a status.
struct Farewell {
  std::string text;
  int status;
};

/// Reads the command line, the one of `policybridge run`.
std::variant<Config, Farewell> parse_arguments(const Words &words);

} // namespace policybridge
