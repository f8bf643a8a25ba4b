#ifndef POLICYBRIDGE_GRPC_SESSION_H
#define POLICYBRIDGE_GRPC_SESSION_H

#include "stream.h"

#include "policybridge/session.h"
#include "policybridge/tensor_spec.h"

namespace policybridge {

/// One session over gRPC; see `Session`. A failed step cannot be repeated, because any failure ends the stream.
class GrpcSession final : public Session {
public:
  /// Errors as `Connection::open`.
  static Result<std::unique_ptr<Session>> open(std::unique_ptr<Stream> stream, const OpenOptions &options,
                                               const Signature &signature);

  Result<SessionInfo> info() const override { return info_; }
  Status evaluate(std::uint64_t step, std::string_view observation, AdviceBuffer &advice) override;
  Status bind(const Signature &signature) override;
  Status set_context(std::string_view name) override;
  Status report(const Outcome &outcome) override;
  bool is_open() const noexcept override { return stream_->over().ok(); }
  void close() noexcept override { stream_->close(); }

private:
  GrpcSession(std::unique_ptr<Stream> stream, SessionInfo info) : stream_(std::move(stream)), info_(std::move(info)) {}
  template <class Call> Status ended_by_failure(Call &&call);
  Status decide(std::uint64_t step, std::string_view observation, AdviceBuffer &advice);
  Status tell(const Outcome &outcome);
  Status request(const v1::SessionRequest &request);

  const std::unique_ptr<Stream> stream_;
  const SessionInfo info_;
  v1::SessionRequest &pending(v1::SessionRequest::MessageCase kind);

  std::vector<v1::SessionRequest> pending_; // to be sent together with the next request
  // Members, so that their memory is allocated once for the whole session.
  v1::SessionRequest request_;
  v1::SessionResponse response_;
};

} // namespace policybridge

#endif
