#include "task.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace policybridge {

namespace {

bool compiles(Kind kind) { return kind != Kind::Llc; }

bool makes_code(Kind kind) { return kind != Kind::Opt; }

// LLVM takes any number but 0 for "inline" (llvm/lib/Analysis/MLInlineAdvisor.cpp); it gets a 1.
Failure inline_or_not(const Signature &signature, std::string_view, char *advice) {
  const std::size_t size = signature.advice.size;
  const bool chosen = std::any_of(advice, advice + size, [](char byte) { return byte != 0; });
  std::memset(advice, 0, size);
  if (size)
    advice[0] = chosen ? 1 : 0;
  return {};
}

bool is_legal(const Spec &mask, std::string_view payload, std::size_t position) {
  const std::size_t width = mask.size / mask.count;
  const std::string_view held = payload.substr(mask.offset + position * width, width);
  return std::any_of(held.begin(), held.end(), [](char byte) { return byte != 0; });
}

std::string legal_positions(const Spec &mask, std::string_view payload) {
  std::string positions;
  for (std::size_t position = 0; position < mask.count; ++position)
    if (is_legal(mask, payload, position))
      positions += (positions.empty() ? "" : ", ") + std::to_string(position);
  return positions;
}

// LLVM crashes on a position that `mask` forbids: it dereferences the interval that is not there
// (llvm/lib/CodeGen/MLRegAllocEvictAdvisor.cpp, tryFindEvictionCandidate).
Failure evictable(const Signature &signature, std::string_view payload, char *advice) {
  const Spec *mask = signature.feature("mask");
  if (!mask || !mask->count)
    return Error::policy(FailedPrecondition, "LLVM sends no feature mask, without which no eviction can be checked");
  const std::int64_t index = integer_of(signature.advice, advice);
  if (index >= 0 && static_cast<std::uint64_t>(index) < mask->count &&
      is_legal(*mask, payload, static_cast<std::size_t>(index)))
    return {};
  return Error::policy(Internal, "the policy would evict at position " + std::to_string(index) +
                                     ", which LLVM cannot; legal here are " + legal_positions(*mask, payload));
}

// LLVM only compares priorities.
Failure any_priority(const Signature &, std::string_view, char *) { return {}; }

constexpr std::array<Task, 3> tasks = {{
    {"evict", "-regalloc-enable-advisor=release", "-regalloc-evict-interactive-channel-base=", true, evictable,
     makes_code},
    {"inline", "-enable-ml-inliner=release", "-inliner-interactive-channel-base=", true, inline_or_not, compiles},
    {"priority", "-regalloc-enable-priority-advisor=release", "-regalloc-priority-interactive-channel-base=", false,
     any_priority, makes_code},
}};

} // namespace

Failure Task::check(Kind kind) const {
  if (asked_by(kind))
    return {};
  std::string known;
  for (const Kind other : {Kind::Clang, Kind::Llc, Kind::Opt, Kind::Zig})
    if (asked_by(other))
      known.append(known.empty() ? "" : ", ").append(name_of(other));
  return Error::policy(InvalidArgument, std::string(name_of(kind)) + " never asks about the task '" +
                                            std::string(name) + "'; it is asked by " + known);
}

const Task *task_named(std::string_view name) {
  const auto found = std::find_if(tasks.begin(), tasks.end(), [name](const Task &task) { return task.name == name; });
  return found == tasks.end() ? nullptr : &*found;
}

std::vector<std::string_view> task_names() {
  std::vector<std::string_view> names;
  for (const Task &task : tasks)
    names.push_back(task.name);
  return names;
}

bool is_inline(const Task &task) { return task.legal == inline_or_not; }

} // namespace policybridge
