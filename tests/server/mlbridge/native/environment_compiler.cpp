// A compiler in training mode, in the manner of ML-Compiler-Bridge's gRPCModelRunner: serves while it compiles, until the
// word `Terminate` comes on its standard input; then it goes on to its end.
//
//   environment_compiler ADDRESS OUTPUT [silent|child|mute|broken]
//
// An action is added to a sum, which is what the compilation comes to. Some actions are none: -1 says that it was the
// last and counts 100, 90 dies, 91 never answers, 92 is an error, 93 answers one number too few.

#include "episode.grpc.pb.h"

#include <cstdlib>
#include <fstream>
#include <future>
#include <grpcpp/grpcpp.h>
#include <iostream>
#include <string>
#include <thread>
#include <unistd.h>

namespace {

class Service final : public episode::CompilerService::Service {
public:
  grpc::Status queryCompiler(grpc::ServerContext *, const episode::Action *Request, episode::State *Reply) override {
    if (Request->action() == -1) {
      Sum += 100;
      return grpc::Status::OK;
    }
    if (Request->action() == 90) {
      std::cerr << "internal compiler error" << std::endl;
      std::_Exit(3);
    }
    if (Request->action() == 91)
      std::promise<void>().get_future().wait();
    if (Request->action() == 92)
      return grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "no such pass");
    Sum += Request->action();
    for (int Index = 0; Index != (Request->action() == 93 ? 2 : 3); ++Index)
      Reply->add_embedding(static_cast<float>(Sum) + 0.5F * static_cast<float>(Index));
    Reply->mutable_detail()->set_remaining(10 - Sum);
    Reply->mutable_detail()->set_legal(Sum < 10);
    Reply->set_name("main");
    for (int Index = 0; Index != Sum; ++Index)
      Reply->add_choices(Index);
    return grpc::Status::OK;
  }

  int Sum = 0;
};

} // namespace

int main(int Count, char **Arguments) {
  const std::string Address = Arguments[1], Output = Arguments[2], Behaviour = Count > 3 ? Arguments[3] : "";
  if (Behaviour == "broken") {
    std::cerr << "error: no such file" << std::endl;
    return 1;
  }
  if (Behaviour == "child" && fork() == 0) {
    std::ofstream(Output + ".child") << getpid() << std::endl;
    pause();
  }
  Service Served;
  int Port = 0;
  grpc::ServerBuilder Builder;
  Builder.AddListeningPort(Address, grpc::InsecureServerCredentials(), &Port);
  Builder.RegisterService(&Served);
  const std::unique_ptr<grpc::Server> Server = Builder.BuildAndStart();
  if (Behaviour != "silent")
    std::cout << "Server Listening on 127.0.0.1:" << Port << std::endl;
  std::string Word;
  std::cin >> Word;
  if (Word != "Terminate" || Behaviour == "mute")
    std::promise<void>().get_future().wait();
  Server->Shutdown();
  std::ofstream(Output) << Served.Sum;
  return 0;
}
