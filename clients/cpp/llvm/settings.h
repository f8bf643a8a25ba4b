#ifndef POLICYBRIDGE_LLVM_SETTINGS_H
#define POLICYBRIDGE_LLVM_SETTINGS_H

#include "phases.h"
#include "server_settings.h"

#include <string>
#include <string_view>
#include <vector>

namespace policybridge::plugin {

/// The settings of the plugin. Each is an option of LLVM's command line (`-policybridge-server=…`) and an environment
/// variable (`POLICYBRIDGE_SERVER`); the command line wins.
struct Settings : ServerSettings {
  /// The file for the statistics; `%p` in it stands for the process id, `%m` for the module. Empty for none.
  std::string stats;
  /// The store of tuned decisions. Empty for none.
  std::string decisions;
  /// The file for the log of sites; `%p` and `%m` as in `stats`. Empty for none.
  std::string sites;
  /// The file for the log of passes; `%p` and `%m` as in `stats`. Empty for none.
  std::string passes;
  /// The kinds of decisions to ask for, by the names of the advice. Empty: those that the policy declares.
  std::vector<std::string> decides;
  /// The module's name in the store. Empty: its source file.
  std::string module;
  /// Where in a build the plugin decides.
  Phases phases;
  /// The factor of a module's size that the policy may add to it; beyond that LLVM's own decisions stand in.
  double growth_limit = 4;
  /// Whether nothing is given that decides: no server, no policy, no store, no log.
  bool is_plain = false;
  /// Whether the project's own store is looked for, see `find_store`: if nothing else is given.
  bool finds_store = false;

  /// Whether no server is asked: decisions come from a store, or are LLVM's own.
  bool is_local() const { return is_plain || !decisions.empty() || !sites.empty() || !passes.empty(); }

  /// Read the command line, which LLVM has parsed, and the environment.
  ///
  /// InvalidArgument: server or policy is missing (unless `is_local`), or a value is out of its range; the message names
  /// both spellings. Under a compiler cache (`compiler_cache`): a setting is not in the cache's key, or an object could be
  /// made without the policy. `stats` and `default_stands_in` are read first, because they apply to such an error too.
  Status read();

private:
  Status read_all();
  Status read_phases(const SettingsSource &source);
  Status read_decides(const SettingsSource &source);
  Status read_plain(const SettingsSource &source);
  Status read_local(const SettingsSource &source);
};

/// Whether LLVM's command line has the plugin's options: not in an LLVM of another major, where nothing of the plugin may
/// be used.
bool has_options();

/// Whether the policy may take the feature `name` of ours; what none takes need not be computed.
bool may_take(std::string_view name);

/// The plugin's version for LLVM: LLVM's own, or the policy that is linked into it.
const char *plugin_version();

} // namespace policybridge::plugin

#endif
