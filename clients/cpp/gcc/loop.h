#ifndef POLICYBRIDGE_GCC_LOOP_H
#define POLICYBRIDGE_GCC_LOOP_H

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace policybridge::plugin {

/// The greatest factor that a policy may advise.
inline constexpr std::size_t most_copies = 16;

/// The features of a loop, each one int64. docs/gcc.md lists them.
enum Feature : std::size_t {
  instructions,
  average_instructions,
  blocks,
  branches,
  exits,
  depth,
  calls,
  loads,
  stores,
  float_operations,
  vector_operations,
  counted,
  constant_iterations,
  estimated_iterations,
  most_iterations,
  runs_per_call,
  function_instructions,
  optimization_level,
  unrolling_default,
  site,
  function_hash,
  loop_number,
  line,
  feature_count
};

/// Their names on the wire, in that order.
inline constexpr std::array<const char *, feature_count> feature_names = {
    "instructions",
    "average_instructions",
    "blocks",
    "branches",
    "exits",
    "depth",
    "calls",
    "loads",
    "stores",
    "float_operations",
    "vector_operations",
    "counted",
    "constant_iterations",
    "estimated_iterations",
    "most_iterations",
    "runs_per_call",
    "function_instructions",
    "optimization_level",
    "unrolling_default",
    "site",
    "function",
    "loop",
    "line",
};

/// One element for each factor: 1 where GCC would follow that advice.
using Mask = std::array<std::int8_t, most_copies + 1>;

/// A loop about which a policy is asked.
struct Loop {
  /// The function's name for the assembler; any bytes.
  std::string function;
  /// Counts the innermost loops of the function, in GCC's order.
  std::size_t ordinal = 0;
  std::array<std::int64_t, feature_count> features{};
  Mask mask{};
};

} // namespace policybridge::plugin

#endif
