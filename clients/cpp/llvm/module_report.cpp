#include "module_report.h"

#include "output_file.h"
#include "process_names.h"

#include "llvm/Support/raw_ostream.h"

#include <vector>

using namespace llvm;

namespace policybridge::plugin {

Outcome ModuleReport::to_outcome() const {
  const char *status = statistics.failure.ok() ? "ok" : fatal ? "error" : "fallback";
  Outcome outcome{{{"asked", static_cast<double>(statistics.decisions)},
                   {"defaults", static_cast<double>(statistics.defaults)},
                   {"limited", static_cast<double>(statistics.limited)},
                   {"inlined", static_cast<double>(inlined)},
                   {"instructions_before", static_cast<double>(instructions_before)},
                   {"instructions_after", static_cast<double>(instructions_after)},
                   {"seconds", seconds}},
                  status};
  if (statistics.passes)
    outcome.values["passes_asked"] = static_cast<double>(statistics.passes->decisions);
  return outcome;
}

Error ModuleReport::write(const std::string &path) const {
  CompilationReport report;
  report.statistics = statistics;
  report.store = store;
  report.seconds = seconds;
  if (fatal)
    report.error = statistics.failure;
  else if (!statistics.failure.ok())
    report.fallback = FallbackReport{statistics.failure, statistics.all_defaults(), false};
  return write_output(path, [&](raw_ostream &out) {
    out << report.to_json("inline", own_command());
    return Error::success();
  });
}

} // namespace policybridge::plugin
