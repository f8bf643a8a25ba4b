#include "policybridge/grpc.h"

#include "deadline.h"
#include "guard.h"
#include "messages.h"
#include "session.h"
#include "stream.h"
#include "utf8.h"

#include <algorithm>
#include <mutex>
#include <thread>

#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

namespace policybridge {
namespace {

/// The values, and room for the other fields of a message.
constexpr int largest_message = static_cast<int>(largest_values) + (1 << 20);

/// Waits when it is destroyed until no thread of gRPC is left, as long as that mostly takes: one may still be closing a
/// channel that was given up. The process may be about to exit, which destroys what these threads use.
struct EndOfGrpc {
  ~EndOfGrpc() {
    if (!waits)
      return;
    for (int tries = 0; grpc_is_initialized() && tries < 100; ++tries)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    // Ends in this thread what gRPC has begun to end in one of its own.
    grpc_init();
    grpc_shutdown_blocking();
  }

  bool waits = false;
};

class GrpcConnection final : public Connection {
public:
  GrpcConnection(GrpcServer server, std::string address, std::array<int, 2> interrupts)
      : server_(std::move(server)), address_(std::move(address)), deadlines_(std::make_shared<CallDeadlines>(server_.timeout, interrupts)) {}

  Result<std::unique_ptr<Session>> open(const OpenOptions &options, const Signature &signature) override {
    return guarded([&] {
      const auto calls = [channel = channel(), server = server_,
                          deadlines = deadlines_](std::chrono::microseconds longest) {
        GrpcServer waited = server;
        waited.timeout = std::min(waited.timeout, longest);
        return std::make_unique<Stream>(channel, std::move(waited), deadlines);
      };
      return GrpcSession::open(calls, address_, options, signature);
    });
  }

  Status check() override {
    return guarded([&] { return evaluate_nothing(); });
  }

  bool prepare(const std::function<bool()> &goes_on) override {
    bool has_failed = false;
    (void)guarded([&]() -> Status {
      end_.waits = true;
      const std::shared_ptr<::grpc::Channel> channel = this->channel();
      // The channel gets ahead only while somebody waits for it.
      auto state = channel->GetState(true);
      for (; state != GRPC_CHANNEL_READY && state != GRPC_CHANNEL_TRANSIENT_FAILURE && goes_on();
           state = channel->GetState(true))
        channel->WaitForStateChange(state, std::chrono::system_clock::now() + std::chrono::milliseconds(5));
      has_failed = state == GRPC_CHANNEL_TRANSIENT_FAILURE;
      return {};
    });
    return !has_failed;
  }

  Status report_outcome(const std::string &session_id, const Outcome &outcome) override {
    return guarded([&] { return report(session_id, outcome); });
  }

private:
  Status evaluate_nothing() {
    // An empty request: any answer shows that the server can be reached.
    v1::EvaluateResponse response;
    const auto [end, status] = call(&v1::PolicyService::Stub::Evaluate, v1::EvaluateRequest(), response);
    if (end == WaitEnd::Answered && status.error_code() == ::grpc::StatusCode::UNAVAILABLE)
      return unavailable("could not reach the server at " + server_.target + ": " + valid_utf8(status.error_message()));
    return end == WaitEnd::Answered ? Status() : server_.status_of(end, status);
  }

  Status report(const std::string &session_id, const Outcome &outcome) {
    v1::ReportOutcomeRequest request;
    request.set_session_id(session_id);
    *request.mutable_outcome() = to_message(outcome);
    v1::ReportOutcomeResponse response;
    const auto [end, status] = call(&v1::PolicyService::Stub::ReportOutcome, request, response);
    return status.ok() ? Status() : server_.status_of(end, status);
  }

  /// Make a unary call, again within the same time-out if the server has not seen it.
  template <class Method, class Request, class Response>
  std::pair<WaitEnd, ::grpc::Status> call(Method method, const Request &request, Response &response) {
    Tries tries(server_.timeout);
    std::pair<WaitEnd, ::grpc::Status> ended = try_call(method, request, response, {});
    while (tries.again(server_.status_of(ended.first, ended.second)))
      ended = try_call(method, request, response, tries.spent());
    return ended;
  }

  template <class Method, class Request, class Response>
  std::pair<WaitEnd, ::grpc::Status> try_call(Method method, const Request &request, Response &response,
                                              CallDeadline::Clock::duration spent) {
    const std::shared_ptr<::grpc::Channel> channel = this->channel();
    ::grpc::ClientContext context;
    server_.access.show(context);
    CallDeadline deadline(*deadlines_, context);
    deadline.begin(server_.timeout - spent);
    const ::grpc::Status status = ((*v1::PolicyService::NewStub(channel)).*method)(&context, request, &response);
    return {deadline.end(), status};
  }

  /// The channel that sessions share. A channel that could not connect fails its calls for a while without trying, so a
  /// failed try is followed by a new channel.
  std::shared_ptr<::grpc::Channel> channel() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!channel_ || channel_->GetState(false) == GRPC_CHANNEL_TRANSIENT_FAILURE)
      channel_ = made_channel();
    return channel_;
  }

  std::shared_ptr<::grpc::Channel> made_channel() const {
    ::grpc::ChannelArguments arguments;
    arguments.SetMaxReceiveMessageSize(largest_message);
    arguments.SetMaxSendMessageSize(largest_message);
    // A build sets http_proxy for downloads; the policy server is not behind that proxy.
    arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
    // Otherwise channels of one target share a connection, and with it the pause after a failed try.
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    // With retries gRPC reads the status of a response that has none, and ends the process (1.51).
    arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
    // gRPC unpacks all of a message before it compares the size with the limit: 2 MB become 2 GB. No server of ours packs.
    arguments.SetInt(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
    arguments.SetInt(GRPC_COMPRESSION_CHANNEL_ENABLED_ALGORITHMS_BITSET, 1 << GRPC_COMPRESS_NONE);
    return ::grpc::CreateCustomChannel(server_.target, server_.access.channel(), arguments);
  }

  EndOfGrpc end_; // the last to be destroyed
  const GrpcServer server_;
  const std::string address_;
  const std::shared_ptr<CallDeadlines> deadlines_;
  std::mutex mutex_;
  std::shared_ptr<::grpc::Channel> channel_;
};

Result<std::shared_ptr<Connection>> connected(std::string_view target, const ConnectOptions &options, bool secure) {
  if (target.empty())
    return invalid_argument("a gRPC address is grpc:HOST:PORT, grpcs:HOST:PORT or grpc:unix:PATH; there is nothing "
                            "after the colon");
  const std::chrono::microseconds timeout = std::min(options.timeout, longest_timeout);
  if (timeout.count() <= 0)
    return invalid_argument("a timeout is more than 0 seconds");
  return guarded([&]() -> Result<std::shared_ptr<Connection>> {
    GrpcServer server{std::string(target), timeout, {}};
    Result<Access> access = Access::of(options.credentials, server.target, secure);
    if (!access.ok())
      return access.status();
    server.access = *std::move(access);
    std::string address = (secure ? "grpcs:" : "grpc:") + server.target;
    return std::shared_ptr<Connection>(
        std::make_shared<GrpcConnection>(std::move(server), std::move(address), options.interrupts));
  });
}

} // namespace

Result<std::shared_ptr<Connection>> connect_grpc(std::string_view target, const ConnectOptions &options) {
  return connected(target, options, false);
}

Result<std::shared_ptr<Connection>> connect_grpcs(std::string_view target, const ConnectOptions &options) {
  return connected(target, options, true);
}

} // namespace policybridge
