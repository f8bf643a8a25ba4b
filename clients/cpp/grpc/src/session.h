#ifndef POLICYBRIDGE_GRPC_SESSION_H
#define POLICYBRIDGE_GRPC_SESSION_H

#include "stream.h"

#include "policybridge/session.h"
#include "policybridge/tensor_spec.h"

#include <functional>
#include <string>

namespace policybridge {

/// One session over gRPC; see `Session`. A failed step cannot be repeated, because any failure ends the stream.
class GrpcSession final : public Session {
public:
  /// Begins a call to the server, whose waits are not longer than this time.
  using Calls = std::function<std::unique_ptr<Stream>(std::chrono::microseconds longest)>;

  /// `server` is its address. Errors as `Connection::open`.
  static Result<std::unique_ptr<Session>> open(Calls calls, std::string server, const OpenOptions &options,
                                               const Signature &signature);

  Result<SessionInfo> info() const override { return info_; }
  Status evaluate(std::uint64_t step, std::string_view observation, AdviceBuffer &advice) override;
  Status bind(const Signature &signature) override;
  Status set_context(std::string_view name) override;
  Status report(const Outcome &outcome) override;
  Result<std::string> form(const FormReference &form) override;
  Status decided(std::uint32_t count, std::chrono::nanoseconds time, std::string_view payload) override;
  Status conclude(const Outcome &outcome) override;
  Status finish() override;
  Status send_record(std::string_view record, std::chrono::microseconds timeout) override;
  std::string server() const override { return address_; }
  bool is_open() const noexcept override { return stream_->over().ok(); }
  void close() noexcept override;

private:
  /// Bytes of decisions that wait for the next request.
  static constexpr std::size_t send_at = std::size_t{64} << 10;

  GrpcSession(Calls calls, std::string address, std::unique_ptr<Stream> stream, SessionInfo info, bool explores)
      : calls_(std::move(calls)), address_(std::move(address)), stream_(std::move(stream)), info_(std::move(info)),
        explores_(explores) {}
  template <class Call> Status ended_by_failure(Call &&call);
  Status decide(std::uint64_t step, std::string_view observation, AdviceBuffer &advice);
  Status tell(const Outcome &outcome);
  Status recorded() const;
  Status request(const v1::SessionRequest &request);
  Status send_pending();
  Status receive_form(const FormReference &form, std::string &bytes);

  const Calls calls_;
  const std::string address_;
  const std::unique_ptr<Stream> stream_;
  const SessionInfo info_;
  const bool explores_;
  v1::SessionRequest &pending(v1::SessionRequest::MessageCase kind);

  std::vector<v1::SessionRequest> pending_; // to be sent together with the next request
  std::size_t decided_ = 0;                 // where the last decisions among them end
  std::size_t decided_bytes_ = 0;
  // Members, so that their memory is allocated once for the whole session.
  v1::SessionRequest request_;
  v1::SessionResponse response_;
};

} // namespace policybridge

#endif
