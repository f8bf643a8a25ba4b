#include "load.h"

#include "policybridge/connection.h"
#include "policybridge/grpc.h"

#include <chrono>
#include <utility>

#include <grpcpp/grpcpp.h>
#include <grpcpp/impl/client_unary_call.h>
#include <grpcpp/support/sync_stream.h>

namespace bench {

using grpc::ByteBuffer;
using policybridge::Result;
using policybridge::Status;

namespace {

// The unary and the streaming client make the calls of a generated stub, on the bytes that its messages would be encoded
// to, so that this side costs the same for every server.

std::shared_ptr<grpc::Channel> connect(const Options &options) {
  const std::string scheme = "grpc:";
  const std::string target =
      options.address.rfind(scheme, 0) == 0 ? options.address.substr(scheme.size()) : options.address;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(target, grpc::InsecureChannelCredentials(), arguments);
}

std::vector<ByteBuffer> to_buffers(const Messages &messages) {
  std::vector<ByteBuffer> buffers;
  for (const std::string &message : messages.messages) {
    const grpc::Slice slice(message);
    buffers.emplace_back(&slice, 1);
  }
  return buffers;
}

Status to_status(const grpc::Status &status) {
  return {policybridge::status_code_from(status.error_code()), status.error_message()};
}

class UnaryClient final : public Client {
public:
  UnaryClient(const Options &options, const Messages &messages)
      : channel_(connect(options)), name_(options.method),
        method_(name_.c_str(), grpc::internal::RpcMethod::NORMAL_RPC, channel_), requests_(to_buffers(messages)) {}

  Status ask(std::size_t number) override {
    grpc::ClientContext context;
    ByteBuffer reply;
    const grpc::Status status = grpc::internal::BlockingUnaryCall<ByteBuffer, ByteBuffer>(
        channel_.get(), method_, &context, requests_[number % requests_.size()], &reply);
    return status.ok() ? Status() : to_status(status);
  }

private:
  std::shared_ptr<grpc::Channel> channel_;
  std::string name_;
  grpc::internal::RpcMethod method_;
  std::vector<ByteBuffer> requests_;
};

class StreamClient final : public Client {
public:
  StreamClient(const Options &options, const Messages &messages)
      : channel_(connect(options)), name_(options.method),
        method_(name_.c_str(), grpc::internal::RpcMethod::BIDI_STREAMING, channel_), requests_(to_buffers(messages)),
        stream_(grpc::internal::ClientReaderWriterFactory<ByteBuffer, ByteBuffer>::Create(channel_.get(), method_,
                                                                                          &context_)) {}

  ~StreamClient() override {
    context_.TryCancel();
    (void)stream_->Finish();
  }

  Status ask(std::size_t number) override {
    ByteBuffer reply;
    if (stream_->Write(requests_[number % requests_.size()]) && stream_->Read(&reply))
      return {};
    return policybridge::unavailable("the stream ended");
  }

private:
  std::shared_ptr<grpc::Channel> channel_;
  std::string name_;
  grpc::internal::RpcMethod method_;
  std::vector<ByteBuffer> requests_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<ByteBuffer, ByteBuffer>> stream_;
};

class SessionClient final : public Client {
public:
  SessionClient(std::shared_ptr<policybridge::Connection> connection, std::unique_ptr<policybridge::Session> session,
               Messages messages)
      : connection_(std::move(connection)), session_(std::move(session)), messages_(std::move(messages)) {}

  Status ask(std::size_t number) override {
    return session_->evaluate(++step_, messages_.messages[number % messages_.messages.size()], advice_);
  }

private:
  std::shared_ptr<policybridge::Connection> connection_;
  std::unique_ptr<policybridge::Session> session_;
  Messages messages_;
  policybridge::AdviceBuffer advice_;
  std::uint64_t step_ = 0;
};

} // namespace

Made make_session(const Options &options, Messages messages) {
  policybridge::ConnectOptions how;
  how.timeout = std::chrono::seconds(30);
  how.schemes.push_back(policybridge::grpc_scheme);
  Result<std::shared_ptr<policybridge::Connection>> connection = policybridge::connect(options.address, how);
  if (!connection)
    return connection.status();
  policybridge::OpenOptions opening;
  opening.policy.name = options.policy;
  Result<std::unique_ptr<policybridge::Session>> session = connection.value()->open(opening, messages.signature);
  if (!session)
    return session.status();
  return Made(std::make_unique<SessionClient>(*std::move(connection), *std::move(session), std::move(messages)));
}

Made make_unary(const Options &options, Messages messages) {
  return Made(std::make_unique<UnaryClient>(options, messages));
}

Made make_stream(const Options &options, Messages messages) {
  return Made(std::make_unique<StreamClient>(options, messages));
}

} // namespace bench
