/// The cost of gRPC alone: each request for a decision is answered by 8 bytes, without looking at it.
///
///   policybridge-grpc-echo TARGET…      prints `ready grpc:HOST:PORT grpc:unix:PATH…`

#include "policybridge/v1/policy_service.grpc.pb.h"

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <grpcpp/grpcpp.h>

namespace {

namespace v1 = policybridge::v1;

const std::string advice(8, '\0');

class Echo final : public v1::PolicyService::Service {
  grpc::Status Evaluate(grpc::ServerContext *, const v1::EvaluateRequest *, v1::EvaluateResponse *reply) override {
    reply->mutable_encoded()->set_data(advice);
    return grpc::Status::OK;
  }

  grpc::Status Session(grpc::ServerContext *,
                       grpc::ServerReaderWriter<v1::SessionResponse, v1::SessionRequest> *stream) override {
    for (v1::SessionRequest request; stream->Read(&request);) {
      v1::SessionResponse reply;
      if (request.has_open())
        reply.mutable_opened();
      else if (request.has_observation())
        answer(request.observation(), *reply.mutable_decision());
      else
        continue;
      stream->Write(reply);
    }
    return grpc::Status::OK;
  }

  static void answer(const v1::Observation &observation, v1::Decision &decision) {
    decision.set_step(observation.step());
    decision.set_advice(advice);
  }
};

std::string with_port(const std::string &target, int port) {
  return target.rfind("unix:", 0) == 0 ? target : target.substr(0, target.rfind(':') + 1) + std::to_string(port);
}

} // namespace

int main(int count, char **words) {
  Echo echo;
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(-1);
  std::vector<int> ports(static_cast<std::size_t>(count));
  for (int index = 1; index < count; ++index)
    builder.AddListeningPort(words[index], grpc::InsecureServerCredentials(), &ports[static_cast<std::size_t>(index)]);
  builder.RegisterService(&echo);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (!server)
    return 1;
  std::printf("ready");
  for (int index = 1; index < count; ++index)
    std::printf(" grpc:%s", with_port(words[index], ports[static_cast<std::size_t>(index)]).c_str());
  std::printf("\n");
  std::fflush(stdout);
  server->Wait();
  return 0;
}
