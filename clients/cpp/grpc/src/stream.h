#ifndef POLICYBRIDGE_GRPC_STREAM_H
#define POLICYBRIDGE_GRPC_STREAM_H

#include "deadlines.h"

#include "policybridge/status.h"
#include "policybridge/v1/policy_service.grpc.pb.h"

#include <memory>
#include <string>

#include <grpcpp/channel.h>

namespace policybridge {

/// A server as its calls need it.
struct Server {
  std::string target;
  std::chrono::microseconds timeout;

  /// What a failed call stands for. Nobody here cancels without knowing: a call that is cancelled came in as the server
  /// stopped, and is as one that could not reach it.
  Status status_of(const ::grpc::Status &failure) const;
  Status late() const;
};

/// One Session RPC, one question and one answer at a time. Each wait has its own deadline.
class Stream {
public:
  /// Throws std::system_error where no thread can be had for the deadlines.
  Stream(const std::shared_ptr<::grpc::Channel> &channel, Server server, std::shared_ptr<Deadlines> deadlines);
  Stream(const Stream &) = delete;
  Stream &operator=(const Stream &) = delete;
  ~Stream();

  /// Send what is answered, behind what is not (null for nothing), and wait for the answer. An error ends the session.
  Status ask(const v1::SessionRequest *before, const v1::SessionRequest &request, v1::SessionResponse &response);

  /// Ok while it can be asked, else why not.
  const Status &over() const noexcept { return over_; }

  /// End the session for `why`, which is no word of the server.
  Status fail(Status why);

  /// Half-close, which ends the session, and wait a little for the server to agree; twice is once.
  void close() noexcept;

private:
  bool exchange(const v1::SessionRequest *before, const v1::SessionRequest &request, v1::SessionResponse &response);

  const Server server_;
  const std::shared_ptr<Deadlines> deadlines_;
  ::grpc::ClientContext context_;
  Deadline deadline_{context_};
  const std::unique_ptr<v1::PolicyService::Stub> stub_;
  std::unique_ptr<::grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionResponse>> call_;
  Status over_;
};

} // namespace policybridge

#endif
