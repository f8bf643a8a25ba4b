#ifndef POLICYBRIDGE_GRPC_STREAM_H
#define POLICYBRIDGE_GRPC_STREAM_H

#include "access.h"
#include "call_deadlines.h"

#include "policybridge/span.h"
#include "policybridge/status.h"
#include "policybridge/v1/policy_service.grpc.pb.h"

#include <memory>
#include <string>

#include <grpcpp/channel.h>

namespace policybridge {

/// The state that all calls to one server share. It is not called `Server`, because several.h has a struct of that name
/// and a program may link both.
struct GrpcServer {
  std::string target;
  std::chrono::microseconds timeout;
  Access access;

  /// The status of a call that failed or that the server ended. CANCELLED becomes Unavailable: if this client has not
  /// cancelled the call, the server is stopping.
  Status status_of(const ::grpc::Status &failure) const;

  /// The status of a call whose wait ended as `end`. If the server answered, it is the status of `failure`.
  Status status_of(WaitEnd end, const ::grpc::Status &failure) const;
};

/// The tries of one call, within one time-out: it is made again, at most four times, while servers refuse it unseen.
class Tries {
public:
  explicit Tries(std::chrono::microseconds timeout) : timeout_(timeout) {}

  /// The time since the first try began.
  CallDeadline::Clock::duration spent() const { return CallDeadline::Clock::now() - begun_; }

  /// Whether there is to be another try after one that ended as `status`; wait until it is due.
  bool again(const Status &status);

private:
  const std::chrono::microseconds timeout_;
  const CallDeadline::Clock::time_point begun_ = CallDeadline::Clock::now();
  std::size_t made_ = 0;
};

/// One Session RPC with one request under way at a time. Each wait has its own deadline.
class Stream {
public:
  /// Throws std::system_error if the thread for the deadlines cannot be started.
  Stream(const std::shared_ptr<::grpc::Channel> &channel, GrpcServer server, std::shared_ptr<CallDeadlines> deadlines);
  Stream(const Stream &) = delete;
  Stream &operator=(const Stream &) = delete;
  ~Stream() { close(); }

  /// Send `before`, then `request`, and wait for the answer to `request`; those before get no answer. `spent` of the
  /// time-out is over. An error ends the session.
  Status request(Span<const v1::SessionRequest> before, const v1::SessionRequest &request, v1::SessionResponse &response,
                 CallDeadline::Clock::duration spent = {});

  /// Wait for a further answer to the latest request; once its time-out is over, no more are waited for. An error ends the
  /// session.
  Status next(v1::SessionResponse &response);

  std::chrono::microseconds timeout() const noexcept { return server_.timeout; }

  /// Send messages that get no answer. An error ends the session.
  Status send(Span<const v1::SessionRequest> messages);

  /// Ok while the stream is open, else why it is closed.
  const Status &over() const noexcept { return over_; }

  /// End the session because of `why`, a failure on this side.
  Status fail(Status why);

  /// Send messages that get no answer, half-close the stream, which ends the session, and wait up to one second for the
  /// server's status: Ok when it has kept all of it. Nothing interrupts this.
  Status finish(Span<const v1::SessionRequest> messages);

  /// Send the last request after messages that get no answer, half-close the stream, and wait for the answer and for the
  /// server's status. Nothing but the time-out ends this.
  Status conclude(Span<const v1::SessionRequest> before, const v1::SessionRequest &last, v1::SessionResponse &response);

  /// Half-close the stream, which ends the session, and wait up to one second for the server to confirm. A second call
  /// does nothing.
  void close() noexcept;

private:
  template <class Call> Status within_deadline(Call &&call, CallDeadline::Clock::duration spent = {});
  bool write(Span<const v1::SessionRequest> messages);
  bool exchange(Span<const v1::SessionRequest> before, const v1::SessionRequest &request,
                v1::SessionResponse &response);

  const GrpcServer server_;
  const std::shared_ptr<CallDeadlines> deadlines_;
  ::grpc::ClientContext context_;
  CallDeadline deadline_{*deadlines_, context_};
  CallDeadline::Clock::time_point due_; // the last moment to wait for a further answer
  const std::unique_ptr<v1::PolicyService::Stub> stub_;
  std::unique_ptr<::grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionResponse>> call_;
  Status over_;
};

} // namespace policybridge

#endif
