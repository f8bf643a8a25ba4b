#ifndef POLICYBRIDGE_PLUGIN_TELLING_H
#define POLICYBRIDGE_PLUGIN_TELLING_H

#include "statistics.h"

#include <string>
#include <string_view>

namespace policybridge::plugin {

/// Write a line that tells no failure to standard error, unless this process, or its driver, only tries the compiler
/// (`is_trial`).
void remark(const std::string &message);

/// Write the statistics file of one module or translation unit; do nothing where `pattern` (see `file_of`) is empty. Its
/// `status` is null, because the compiler goes on after this. If the file cannot be written, standard error says why.
///
/// `name` is the module's or the source's, and `fatal` whether the failure in the statistics ends the compilation; the
/// report's error and fallback are made from it.
void write_statistics(const std::string &pattern, const std::string &name, std::string_view task, bool fatal,
                      CompilationReport report);

/// Say on standard error how many decisions are `own` (`the compiler's own`) after a failure of the policy.
void tell_defaults(const Statistics &statistics, const char *own = "the compiler's own");

/// Say on standard error, a line each, why decisions of a kind are the compiler's own: it is not for this compilation.
void tell_outside(const Statistics &statistics);

/// Say on standard error how many decisions are the compiler's own beyond the growth limit, if any: `factor` times `of`.
void tell_limited(const Statistics &statistics, double factor, const char *of);

} // namespace policybridge::plugin

#endif
