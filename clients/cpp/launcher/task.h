#pragma once

#include "compiler.h"
#include "error.h"
#include "signature.h"

#include <string_view>

namespace policybridge {

/// An optimisation problem, as the host sees it.
struct Task {
  std::string_view name;
  /// LLVM's flag that makes it ask, and the beginning of the one that says where.
  std::string_view advisor;
  std::string_view channel;
  /// Whether the advice is one of a few integers.
  bool choices;
  /// Checks `advice` before LLVM sees what it would crash on, and changes it to what LLVM takes.
  Failure (*legal)(const Signature &signature, std::string_view payload, char *advice);
  bool (*asked_by)(Kind kind);

  /// InvalidArgument where a compiler of this kind never asks.
  Failure check(Kind kind) const;
};

/// The task called `name`; nullptr where there is none.
const Task *task_named(std::string_view name);

/// The tasks' names in alphabetical order.
std::vector<std::string_view> task_names();

/// Whether `task` is inlining, the only one of which LLVM's own decision may be known.
bool is_inline(const Task &task);

} // namespace policybridge
