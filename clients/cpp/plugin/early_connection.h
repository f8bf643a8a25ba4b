#ifndef POLICYBRIDGE_PLUGIN_EARLY_CONNECTION_H
#define POLICYBRIDGE_PLUGIN_EARLY_CONNECTION_H

#include "descriptor.h"
#include "queued_session.h"
#include "worker.h"

#include "policybridge/policybridge.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

namespace policybridge::plugin {

/// Whether a round trip to the server at this address may take long: it is reached by gRPC, and no socket may answer first.
bool is_far(const std::string &server);

/// Whether the address is one socket of this machine.
bool is_near(const std::string &server);

/// A connection that a thread makes while the compiler does other work. The thread opens one session ahead, sends its
/// reports, and ends it. For one other thread at a time.
class EarlyConnection final : public Connection {
public:
  /// Begin to reach the server; null if that cannot be done in a thread. `server` and `timeout` as of `ServerSettings`.
  /// `at_exit` is called when the process exits, before gRPC's part is destroyed: it has to call `end`.
  static std::shared_ptr<EarlyConnection> begin(const std::string &server, std::chrono::milliseconds timeout,
                                                void (*at_exit)());
  ~EarlyConnection() override { end(); }

  /// Whether this caller is the first to use it; the connection is for one.
  bool take() { return !is_taken_.exchange(true); }

  /// Open a session ahead, which a later `open` with the same options gets; only of several kinds. It has no signature
  /// before, and a server records none without a signature. If decisions may be made here, read the form of this kind.
  void expect(OpenOptions options, std::string kind);

  Result<std::unique_ptr<Session>> open(const OpenOptions &options, const Signature &signature) override;
  Status check() override;
  Status report_outcome(const std::string &session_id, const Outcome &outcome) override;

  /// Report the outcome, end the session of `runner`, and then call `then`, without waiting for it.
  void finish(std::unique_ptr<ModelRunner> runner, Outcome outcome, std::function<void()> then = {});

  /// Wait for what `finish` began; give up all else. Nothing is left of the connection then, not even a thread.
  void end() noexcept;

private:
  EarlyConnection(std::string server, Descriptor alarm, std::shared_ptr<Connection> connection)
      : server_(std::move(server)), alarm_(std::move(alarm)),
        connection_(std::move(connection)) {}
  void prepare(std::chrono::milliseconds timeout, void (*at_exit)());
  void open_ahead(const OpenOptions &options, const std::string &kind);
  Result<std::unique_ptr<Session>> asked(Result<std::unique_ptr<Session>> opened) const;

  const std::string server_;
  const Descriptor alarm_; // an eventfd; readable when nobody needs the server any more
  std::shared_ptr<Connection> connection_;
  std::atomic<bool> is_expected_{false};
  std::atomic<bool> is_needed_{false}; // or given up: nothing is prepared any more
  std::atomic<bool> is_taken_{false};
  bool finishes_ = false;
  // Of the thread, until it has settled.
  std::optional<Status> reached_;
  std::optional<Result<std::unique_ptr<Session>>> ahead_;
  OpenOptions options_; // of the session ahead
  std::optional<QueuedSession::Ahead> form_;
  Worker worker_;
};

} // namespace policybridge::plugin

#endif
