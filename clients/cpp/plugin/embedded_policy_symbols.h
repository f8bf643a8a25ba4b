#ifndef POLICYBRIDGE_PLUGIN_EMBEDDED_POLICY_SYMBOLS_H
#define POLICYBRIDGE_PLUGIN_EMBEDDED_POLICY_SYMBOLS_H

#include <cstddef>
#include <cstdint>

/// The policy that `policybridge embed` links into the plugin: the C file that it writes, with these names. The header
/// beside that file describes each of them.
extern "C" {
struct embedded_policy_observation;
struct embedded_policy_advice;

struct embedded_policy_tensor {
  const char *name;
  const char *type;
  std::size_t offset;
  std::size_t size;
  int has_default;
};

extern const embedded_policy_tensor embedded_policy_features[];
extern const std::size_t embedded_policy_feature_count;
extern const std::size_t embedded_policy_observation_size;
extern const char embedded_policy_identity[];

void embedded_policy_fill(embedded_policy_observation *observation);
int embedded_policy_decide(const embedded_policy_observation *observation, embedded_policy_advice *advice);
const char *embedded_policy_status_text(int status);

/// The plugin's additions to that file.
extern const char embedded_policy_name[];
extern const std::uint64_t embedded_policy_version;
extern const char embedded_policy_digest[];
extern const double embedded_policy_growth_limit;
}

#endif
