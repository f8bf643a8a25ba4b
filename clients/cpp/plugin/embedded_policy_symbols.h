#ifndef POLICYBRIDGE_PLUGIN_EMBEDDED_POLICY_SYMBOLS_H
#define POLICYBRIDGE_PLUGIN_EMBEDDED_POLICY_SYMBOLS_H

#include <cstddef>
#include <cstdint>

/// The policy that `policybridge embed` links into the plugin.
extern "C" {
struct embedded_policy_tensor {
  const char *name;
  const char *type;
  std::size_t offset;
  std::size_t size;
  int has_default;
};

/// How the policy makes decisions of one kind: the C file that `policybridge embed` writes. The header beside that file
/// describes each member.
struct embedded_policy_kind {
  const char *name; ///< of the advice
  const embedded_policy_tensor *features;
  std::size_t feature_count;
  std::size_t observation_size;
  void (*fill)(void *observation);
  int (*decide)(const void *observation, void *advice);
  const char *(*status_text)(int status);
};

/// A value of a label in the policy's scope.
struct embedded_policy_label {
  const char *kind; ///< of decisions; empty: all
  const char *label;
  const char *value;
};

extern const embedded_policy_kind embedded_policy_kinds[];
extern const std::size_t embedded_policy_kind_count;

extern const embedded_policy_label embedded_policy_scope[];
extern const std::size_t embedded_policy_scope_count;

extern const char embedded_policy_identity[];
extern const char embedded_policy_name[];
extern const std::uint64_t embedded_policy_version;
extern const char embedded_policy_digest[];
extern const double embedded_policy_growth_limit;
}

#endif
