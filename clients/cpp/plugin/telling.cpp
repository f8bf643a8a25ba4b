#include "telling.h"

#include "../launcher/files.h"
#include "process_names.h"
#include "utf8.h"

#include <array>
#include <cstdio>
#include <mutex>
#include <set>

namespace policybridge::plugin {

namespace {

/// Whether the process has not said this yet. A linker optimises many modules, of which each would say the same.
bool is_new(const std::string &message) {
  static std::mutex mutex;
  static auto &said = *new std::set<std::string>; // threads may outlive the end of main
  const std::lock_guard lock(mutex);
  return said.insert(message).second;
}

} // namespace

void remark(const std::string &message) {
  if (!is_trial(own_command()) && !is_trial(driver_command()) && is_new(message))
    (void)std::fprintf(stderr, "policybridge: %s\n", one_line(message).c_str());
}

void write_statistics(const std::string &pattern, const std::string &name, std::string_view task, bool fatal,
                      CompilationReport report) {
  if (pattern.empty())
    return;
  const Status &failure = report.statistics.failure;
  if (fatal)
    report.error = failure;
  else if (!failure.ok())
    report.fallback = FallbackReport{failure, report.statistics.all_defaults(), false};
  const Status written = write_file(file_of(pattern, name), report.to_json(task, own_command()));
  if (!written.ok())
    remark("no statistics: " + written.message());
}

void tell_defaults(const Statistics &statistics, const char *own) {
  const std::string count = statistics.all_decisions() ? std::to_string(statistics.all_defaults()) : "all";
  remark(count + " decisions are " + own + ": " + statistics.failure.message());
}

void tell_outside(const Statistics &statistics) {
  for (const auto &[kind, left] : statistics.outside)
    if (left.decisions)
      remark("all decisions on " + kind + " are the compiler's own: " + left.reason);
}

void tell_limited(const Statistics &statistics, double factor, const char *of) {
  if (!statistics.limited)
    return;
  std::array<char, 32> text{};
  (void)std::snprintf(text.data(), text.size(), "%g", factor);
  remark(std::to_string(statistics.limited) + " decisions are the compiler's own: the policy has added " + text.data() +
         " times " + of + " (growth limit)");
}

} // namespace policybridge::plugin
