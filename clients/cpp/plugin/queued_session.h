#ifndef POLICYBRIDGE_PLUGIN_QUEUED_SESSION_H
#define POLICYBRIDGE_PLUGIN_QUEUED_SESSION_H

#include "worker.h"

#include "policybridge/session.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>

namespace policybridge::plugin {

/// A session whose messages without an answer are sent by a worker, so that the compiler does not wait until the server
/// takes them. What has an answer waits for the worker first.
class QueuedSession final : public Session {
public:
  /// A form that has been read ahead, by its digest.
  struct Ahead {
    std::string digest;
    Result<std::optional<Form>> form;
  };

  /// `worker` outlives this.
  QueuedSession(Worker &worker, std::unique_ptr<Session> server, std::optional<Ahead> ahead)
      : worker_(worker), server_(std::move(server)), ahead_(std::move(ahead)) {}
  ~QueuedSession() override { close(); }

  Result<SessionInfo> info() const override { return server_->info(); }
  Status evaluate(std::uint64_t step, std::string_view observation, AdviceBuffer &advice) override;
  Status bind(const Signature &signature) override;
  Status set_context(std::string_view name) override;
  Status report(const Outcome &outcome) override;
  Result<std::string> form(const FormReference &form) override;
  std::optional<Result<std::optional<Form>>> form_ahead(const std::string &digest) override;
  Status decided(std::uint32_t count, std::chrono::nanoseconds time, std::string_view payload) override;
  Status conclude(const Outcome &outcome) override;
  Status finish() override;
  Status send_record(std::string_view record, std::chrono::microseconds timeout) override;
  std::string server() const override { return server_->server(); }
  bool is_open() const noexcept override { return is_open_; }
  void close() noexcept override;

private:
  /// Bytes of reports that wait for the worker; beyond that the compiler waits, too.
  static constexpr std::size_t most_waiting = std::size_t{16} << 20;

  template <class Call> auto at_once(Call &&call) -> decltype(call());
  template <class Call> Status later(std::size_t size, Call &&call);

  Worker &worker_;
  const std::unique_ptr<Session> server_;
  const std::optional<Ahead> ahead_;
  std::atomic<std::size_t> waiting_{0};
  std::atomic<bool> is_open_{true};
  Status lost_; // the worker's, read where it has settled
};

} // namespace policybridge::plugin

#endif
