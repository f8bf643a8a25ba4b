#ifndef POLICYBRIDGE_LLVM_SETTINGS_H
#define POLICYBRIDGE_LLVM_SETTINGS_H

#include "llvm/Support/Error.h"

#include <chrono>
#include <map>
#include <string>

namespace policybridge::plugin {

/// The settings of the plugin. Each is an option of LLVM's command line (`-policybridge-server=…`) and an environment
/// variable (`POLICYBRIDGE_SERVER`); the command line wins.
struct Settings {
  /// The server's address, `socket:PATH`.
  std::string server;
  /// The policy: `NAME`, `NAME@VERSION` or `NAME@ALIAS`.
  std::string policy;
  /// For each wait for the server.
  std::chrono::milliseconds timeout{10000};
  /// The file for the statistics; `%p` in it stands for the process id, `%m` for the module. Empty for none.
  std::string stats;
  /// Whether LLVM's own decisions stand in where there is no advice; else the compilation fails.
  bool default_stands_in = true;
  /// For the policy to read.
  std::map<std::string, std::string> options;
  /// For people and trainers to find the session by.
  std::map<std::string, std::string> labels;

  /// Read the command line, which LLVM has parsed, and the environment.
  ///
  /// Fails where server or policy is missing, or a value is out of its range; the message names both spellings. `stats`
  /// and `default_stands_in` are read first, because they apply to such an error too.
  llvm::Error read();
};

} // namespace policybridge::plugin

#endif
