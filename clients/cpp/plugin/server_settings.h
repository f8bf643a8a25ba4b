#ifndef POLICYBRIDGE_PLUGIN_SERVER_SETTINGS_H
#define POLICYBRIDGE_PLUGIN_SERVER_SETTINGS_H

#include "outage.h"
#include "settings_source.h"

#include "policybridge/session.h"

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace policybridge::plugin {

class EarlyConnection;

/// Whom a plugin asks, and how.
struct ServerSettings {
  /// The server's address, `socket:PATH`, `grpc:HOST:PORT`, `grpc:unix:PATH` or `grpcs:HOST:PORT`, or several.
  std::string server;
  /// The policy: `NAME`, `NAME@VERSION` or `NAME@ALIAS`.
  std::string policy;
  /// For each wait for the server.
  std::chrono::milliseconds timeout{10000};
  /// Whether the compiler's own decisions stand in where there is no advice; else the compilation fails.
  bool default_stands_in = true;
  /// In seconds, how long it is remembered that the server did not answer in time; 0: not at all.
  double retry_after = 60;
  /// For the policy to read.
  std::map<std::string, std::string> options;
  /// For people and trainers to find the session by.
  std::map<std::string, std::string> labels;
  /// How the sessions depart from the policy's best advice; its seed is mixed with the module's name. Absent:
  /// not.
  std::optional<Exploration> exploration;
  /// Where the decisions are made.
  Evaluate evaluate = Evaluate::Auto;
  /// Whether the records of sessions that decide here are kept on disk if the server goes away.
  bool spool = true;
  /// The connection that is made while the compiler reads its source, for the first session; null: there is none.
  std::shared_ptr<EarlyConnection> early;

  /// Read all but `default_stands_in`.
  ///
  /// InvalidArgument: server or policy is missing, or a value is out of its range; the message names both spellings.
  Status read_server(const SettingsSource &source);

  /// What is remembered of the server; nothing where the compiler's own decisions cannot stand in.
  Outage outage() const;

  /// Check the settings under a compiler cache, whose key is the command line: all that changes the object is in it. Fails
  /// where a setting is in the environment, the policy's version is open, or an object could be made without the policy.
  /// Under no cache (`compiler_cache`) all is right. To be called before `read_server`, and after `default_stands_in` is
  /// read; after an error it is false, because an object without the policy would be kept as the policy's.
  ///
  /// `more`: further settings that change the object. `prefix`: what stands before a setting on the compiler's command
  /// line (`-mllvm `).
  Status check_cached(const SettingsSource &source, const std::vector<std::string_view> &more,
                      const std::string &prefix = "");
};

} // namespace policybridge::plugin

#endif
