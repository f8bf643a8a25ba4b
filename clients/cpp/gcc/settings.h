#ifndef POLICYBRIDGE_GCC_SETTINGS_H
#define POLICYBRIDGE_GCC_SETTINGS_H

#include "server_settings.h"

#include <string>
#include <utility>
#include <vector>

namespace policybridge::plugin {

/// An argument of the command line: `-fplugin-arg-policybridge_unroll_gcc12-NAME=VALUE`.
using Argument = std::pair<std::string, std::string>;

/// The settings of the plugin. Each is an argument of the command line (`…-server=…`) and an environment variable
/// (`POLICYBRIDGE_SERVER`); the command line wins.
struct Settings : ServerSettings {
  /// The file for the statistics; `%p` in it stands for the process id, `%m` for the source file. Empty for none.
  std::string stats;
  /// How many instructions the policy may add, as a factor of those of the functions so far.
  double growth_limit = 4;

  /// Read the arguments and the environment; `program` names the plugin in messages.
  ///
  /// InvalidArgument: server or policy is missing, or a value is out of its range; also under a compiler cache
  /// (`compiler_cache`), where a setting is not in the cache's key, or an object could be made without the policy.
  /// `stats` and `default_stands_in` are read first, because they apply to such an error too.
  Status read(const std::string &program, const std::vector<Argument> &arguments);
};

/// The first argument that the plugin does not have; empty where there is none.
std::string unknown_argument(const std::vector<Argument> &arguments);

} // namespace policybridge::plugin

#endif
