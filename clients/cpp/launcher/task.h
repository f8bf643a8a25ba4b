#pragma once

#include "compiler.h"
#include "policybridge/tensor_spec.h"

#include <string_view>
#include <vector>

namespace policybridge {

/// An optimisation problem, as the launcher needs to know it.
struct Task {
  std::string_view name;
  /// LLVM's flag that switches the advisor on.
  std::string_view advisor_flag;
  /// The beginning of LLVM's flag that names the channel.
  std::string_view channel_flag;
  /// Whether the advice is one of a few integers.
  bool is_choice;
  /// Check the advice before LLVM reads it, because LLVM would crash on an illegal one, and change it to the value that
  /// LLVM expects.
  Status (*make_legal)(const Signature &signature, std::string_view payload, std::vector<char> &advice);
  /// Whether a compiler of this kind can have the advisor.
  bool (*has_advisor)(CompilerKind kind);

  /// InvalidArgument: a compiler of this kind has no advisor for the task.
  Status check(CompilerKind kind) const;
};

/// The task called `name`; nullptr where there is none.
const Task *task_named(std::string_view name);

/// Whether `task` is inlining, the only task for which LLVM's own decision can be known.
bool is_inline(const Task &task);

} // namespace policybridge
