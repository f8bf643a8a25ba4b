#include "module_report.h"

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

} // namespace policybridge::plugin
