#include "telling.h"

#include "../launcher/files.h"
#include "process_names.h"

#include <cstdio>

namespace policybridge::plugin {

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
    (void)std::fprintf(stderr, "policybridge: no statistics: %s\n", written.message().c_str());
}

void tell_defaults(const Statistics &statistics, const char *own) {
  const std::string count = statistics.all_decisions() ? std::to_string(statistics.all_defaults()) : "all";
  (void)std::fprintf(stderr, "policybridge: %s decisions are %s: %s\n", count.c_str(), own,
                     statistics.failure.message().c_str());
}

void tell_limited(const Statistics &statistics, double factor, const char *of) {
  if (statistics.limited)
    (void)std::fprintf(stderr,
                       "policybridge: %llu decisions are the compiler's own: the policy has added %g times %s (growth "
                       "limit)\n",
                       static_cast<unsigned long long>(statistics.limited), factor, of);
}

} // namespace policybridge::plugin
