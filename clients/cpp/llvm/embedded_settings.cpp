#include "settings.h"

#include "advisor.h"
#include "cache_key.h"
#include "compiler_cache.h"
#include "embedded_policy.h"
#include "host_version.h"

#include "llvm/Support/Process.h"

#include <algorithm>
#include <dlfcn.h>

using namespace llvm;

namespace policybridge::plugin {
namespace {

/// Asked while the plugin is loaded, before anything of LLVM's is used.
const bool right_host = is_right_host("policybridge-inliner");

/// The file of this plugin; empty where the system does not tell it.
std::string own_file() {
  Dl_info info{};
  return dladdr(&right_host, &info) && info.dli_fname ? info.dli_fname : "";
}

} // namespace

bool has_options() { return right_host; }

bool may_take(std::string_view name) {
  const embedded_policy_kind *kind = EmbeddedPolicy::find(inlining);
  return kind && std::any_of(kind->features, kind->features + kind->feature_count,
                             [&](const embedded_policy_tensor &feature) { return feature.name == name; });
}

const char *plugin_version() { return embedded_policy_identity; }

/// No setting but the phases changes the object.
Status Settings::read() {
  stats = sys::Process::GetEnv("POLICYBRIDGE_STATS").value_or("");
  growth_limit = embedded_policy_growth_limit;
  constexpr const char *of_phases = "POLICYBRIDGE_PHASES";
  Result<Phases> read = Phases::parse(sys::Process::GetEnv(of_phases).value_or(""));
  if (!read.ok())
    return invalid_argument(std::string(of_phases) + " " + read.status().message());
  phases = *std::move(read);
  const std::string cache = compiler_cache();
  if (cache.empty())
    return {};
  Status status = check_in_key(cache, own_file(), "the policy changes");
  if (status.ok() && phases.is_given)
    status = refused_under(cache, "unset POLICYBRIDGE_PHASES, because it keeps the object by the command line alone");
  // An object without the policy would be kept as the policy's.
  default_stands_in = status.ok();
  return status;
}

} // namespace policybridge::plugin
