#ifndef POLICYBRIDGE_MLIR_ADVISOR_H
#define POLICYBRIDGE_MLIR_ADVISOR_H

#include "question.h"
#include "settings.h"
#include "statistics.h"

#include <memory>
#include <string>

namespace policybridge::plugin {

/// Advises about the loops of one module. After a failure nobody is asked any more.
class Advisor {
public:
  virtual ~Advisor() = default;

  /// Begin, before the first question.
  virtual Status open() = 0;

  /// Say that the following questions are about the operation `site`, in UTF-8.
  virtual Status set_site(const std::string &site) = 0;

  /// Give the place of a size, as the policy says it: it may be outside of the list.
  virtual Result<std::int64_t> ask(const Question &question) = 0;

  /// Note the failure after which the default tile stands in.
  virtual void fail(Status failure) { statistics_.failure = std::move(failure); }

  /// End the session, and report the outcome if there is a ledger.
  virtual void finish(const Outcome &) {}

  Statistics &statistics() { return statistics_; }

private:
  Statistics statistics_;
};

/// Make the advisor of this plugin: by a server, or by the policy that is linked into it. `module` is its name.
std::unique_ptr<Advisor> make_advisor(const Settings &settings, const std::string &module);

/// Whether the policy is within this plugin, so that no server is named.
bool has_own_policy();

/// The plugin's version for mlir-opt: LLVM's own, or the policy that is linked into it.
const char *plugin_version();

} // namespace policybridge::plugin

#endif
