#ifndef POLICYBRIDGE_PLUGIN_SERVER_SESSION_H
#define POLICYBRIDGE_PLUGIN_SERVER_SESSION_H

#include "early_connection.h"
#include "outage.h"
#include "patience.h"
#include "server_settings.h"
#include "statistics.h"

#include "policybridge/policybridge.h"

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace policybridge::plugin {

/// The session of one compilation with the server: reached once, bounded in all its waits together, and remembered where
/// it does not answer in time (`Outage`). The advice is one integer.
class ServerSession {
public:
  /// `context` is the module's name, in UTF-8, and `client` the label of that name; `labels` are further ones. The
  /// settings' labels win over these. Nothing is sent yet.
  ServerSession(const ServerSettings &settings, std::string context, std::string client,
                std::map<std::string, std::string> labels = {})
      : settings_(settings), context_(std::move(context)), labels_(std::move(labels)), patience_(settings.timeout) {
    labels_["client"] = std::move(client);
  }

  /// Open the session ahead, where a connection is made early, for decisions of this kind. `several_kinds` as in `open`.
  void expect(bool several_kinds, const char *kind);

  /// Connect, and see whether somebody answers; nothing happens after it has succeeded once.
  Status reach();

  /// Open the session, after `reach`, and note it in `statistics`. `several_kinds` as in `OpenOptions`.
  Status open(const std::vector<TensorSpec> &features, const char *advice, Statistics &statistics,
              bool several_kinds = false);

  /// The kinds of decisions that the policy declares, see `SessionInfo`; empty before the session is open.
  const std::vector<std::string> &kinds() const { return kinds_; }

  /// Whether the session is open.
  bool is_open() const { return runner_ != nullptr; }

  /// Holds the features; only of an open session.
  ModelRunner &runner() { return *runner_; }

  /// Ask for the advice on the features.
  Result<std::int64_t> evaluate();

  /// End session and connection because of a failure, and remember it for other compilations, if it is that the server
  /// did not answer in time. Nothing of them is left when the compiler exits because of it.
  void fail(const Status &failure);

  /// Report the outcome and close the session, which is open; over an early connection this goes on beside the compiler.
  /// Then call `then`.
  void finish(const Outcome &outcome, std::function<void()> then = {});

  /// Close the session without an outcome.
  void close();

private:
  Result<OpenOptions> options(bool several_kinds, std::shared_ptr<RecordCounts> records) const;
  Status reach(std::shared_ptr<Connection> connection);
  void remember(const Status &failure) const;

  const ServerSettings &settings_;
  const std::string context_;
  std::map<std::string, std::string> labels_;
  std::shared_ptr<Connection> connection_;
  std::shared_ptr<EarlyConnection> early_; // is the connection, if it was made early
  std::unique_ptr<ModelRunner> runner_;
  std::vector<std::string> kinds_;
  Patience patience_;
};

} // namespace policybridge::plugin

#endif
