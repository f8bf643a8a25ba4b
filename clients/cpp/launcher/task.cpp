#include "task.h"

#include "features.h"

#include <algorithm>
#include <array>

namespace policybridge {

namespace {

bool inlines(CompilerKind kind) { return kind != CompilerKind::Llc; }

bool allocates_registers(CompilerKind kind) { return kind != CompilerKind::Opt; }

bool is_not_zero(char byte) { return byte != 0; }

// LLVM reads any number but 0 as "inline" (llvm/lib/Analysis/MLInlineAdvisor.cpp); send 1 for all of them.
Status inline_or_not(const Signature &, std::string_view, std::vector<char> &advice) {
  const bool inlined = std::any_of(advice.begin(), advice.end(), is_not_zero);
  std::fill(advice.begin(), advice.end(), '\0');
  if (!advice.empty())
    advice[0] = inlined;
  return {};
}

bool is_legal(const FeatureSlice &mask, std::string_view payload, std::size_t position) {
  const std::size_t width = mask.size / mask.count;
  const std::string_view element = payload.substr(mask.offset + position * width, width);
  return std::any_of(element.begin(), element.end(), is_not_zero);
}

std::string legal_positions(const FeatureSlice &mask, std::string_view payload) {
  std::string positions;
  for (std::size_t position = 0; position < mask.count; ++position)
    if (is_legal(mask, payload, position))
      positions += (positions.empty() ? "" : ", ") + std::to_string(position);
  return positions;
}

// LLVM crashes on a position that `mask` forbids, because it dereferences an interval that does not exist
// (llvm/lib/CodeGen/MLRegAllocEvictAdvisor.cpp, tryFindEvictionCandidate).
Status evictable(const Signature &signature, std::string_view payload, std::vector<char> &advice) {
  const std::optional<FeatureSlice> mask = find_feature(signature, "mask");
  if (!mask || !mask->count)
    return failed_precondition("LLVM sends no feature mask, without which no eviction can be checked");
  const std::int64_t index = integer_in({advice.data(), advice.size()});
  if (index >= 0 && static_cast<std::uint64_t>(index) < mask->count &&
      is_legal(*mask, payload, static_cast<std::size_t>(index)))
    return {};
  return internal_error("the policy would evict at position " + std::to_string(index) +
                        ", which LLVM cannot; legal here are " + legal_positions(*mask, payload));
}

// LLVM only compares priorities.
Status any_priority(const Signature &, std::string_view, std::vector<char> &) { return {}; }

constexpr std::array<Task, 3> tasks = {{
    {"evict", "-regalloc-enable-advisor=release", "-regalloc-evict-interactive-channel-base=", true, evictable,
     allocates_registers},
    {"inline", "-enable-ml-inliner=release", "-inliner-interactive-channel-base=", true, inline_or_not, inlines},
    {"priority", "-regalloc-enable-priority-advisor=release", "-regalloc-priority-interactive-channel-base=", false,
     any_priority, allocates_registers},
}};

} // namespace

Status Task::check(CompilerKind kind) const {
  if (has_advisor(kind))
    return {};
  std::string known;
  for (const CompilerKind other : {CompilerKind::Clang, CompilerKind::Llc, CompilerKind::Opt, CompilerKind::Zig}) {
    if (has_advisor(other))
      known.append(known.empty() ? "" : ", ").append(name_of(other));
    // `policybridge run` also knows `clang -cc1`; both must give the same message.
    if (other == CompilerKind::Clang)
      known += ", clang -cc1";
  }
  return invalid_argument(std::string(name_of(kind)) + " never asks about the task '" + std::string(name) +
                          "'; it is asked by " + known);
}

const Task *task_named(std::string_view name) {
  const auto known = std::find_if(tasks.begin(), tasks.end(), [name](const Task &task) { return task.name == name; });
  return known == tasks.end() ? nullptr : &*known;
}

bool is_inline(const Task &task) { return task.make_legal == inline_or_not; }

} // namespace policybridge
