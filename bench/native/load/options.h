#ifndef POLICYBRIDGE_BENCH_OPTIONS_H
#define POLICYBRIDGE_BENCH_OPTIONS_H

#include <optional>
#include <string>

namespace bench {

/// What one client does; see policybridge_bench/load.py, whose names these are.
struct Options {
  /// `session`, `unary`, `stream`, `socket` or `http`.
  std::string kind;
  std::string address;
  std::string method;
  std::string policy;
  /// What is sent; see file.h.
  std::string file;
  /// How long, in seconds.
  double seconds = 1;
  double warm_up = 0.2;
  /// Asks per second; absent for a closed loop.
  std::optional<double> rate;
};

/// Read `--name=value` words; says what is wrong on standard error and gives nothing.
std::optional<Options> parse_options(int count, char **words);

} // namespace bench

#endif
