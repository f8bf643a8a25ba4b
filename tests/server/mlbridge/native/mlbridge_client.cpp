/// A compiler in the manner of ML-Compiler-Bridge's gRPC runner: plain generated stubs, one request object that is filled
/// and asked with, the first field of the reply as the advice. It waits 10 s, then sends the same again, up to 30 times.
///
///     mlbridge_client types|passes|loops|registers ADDRESS NUMBER
///
/// Prints what it was advised, separated by spaces; NUMBER makes the observations of one run differ from another's.

#include "every_type.grpc.pb.h"
#include "loop_distribution.grpc.pb.h"
#include "pass_sequence.grpc.pb.h"
#include "register_allocation.grpc.pb.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <grpcpp/grpcpp.h>
#include <memory>
#include <string>

namespace {

constexpr int Attempts = 30;
constexpr std::chrono::seconds Patience(10);

/// Calls until there is an answer; gives up with the status on standard error.
template <typename Stub, typename Method, typename Request, typename Reply>
void advise(Stub &stub, Method method, const Request &request, Reply &reply) {
  grpc::Status status;
  for (int attempt = 0; attempt < Attempts; ++attempt) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + Patience);
    status = (stub.*method)(&context, request, &reply);
    if (status.ok())
      return;
    if (status.error_code() != grpc::StatusCode::DEADLINE_EXCEEDED)
      break;
  }
  std::fprintf(stderr, "no advice: %d %s\n", static_cast<int>(status.error_code()), status.error_message().c_str());
  std::exit(1);
}

/// Sends every type once and prints what comes back for each kind of reply.
void types(const std::shared_ptr<grpc::Channel> &channel, int number) {
  using everytype::EveryType;
  const std::unique_ptr<EveryType::Stub> stub = EveryType::NewStub(channel);
  everytype::Everything all;
  all.set_i32(-number);
  all.set_i64(-(1LL << 40) - number);
  all.set_u32(4000000000U);
  all.set_u64(1ULL << 63);
  all.set_f32(0.5F);
  all.set_f64(0.1);
  all.set_flag(true);
  all.set_text("text");
  all.set_data("\xff", 1);
  all.set_colour(everytype::GREEN);
  for (const int element : {1, -2, number}) {
    all.add_i32s(element);
    all.add_i64s(element * (1LL << 40));
    all.add_f32s(static_cast<float>(element) / 4);
    all.add_f64s(element / 10.0);
  }

  everytype::Int32 i32;
  advise(*stub, &EveryType::Stub::askInt32, all, i32);
  everytype::Int64 i64;
  advise(*stub, &EveryType::Stub::askInt64, all, i64);
  everytype::Float f32;
  advise(*stub, &EveryType::Stub::askFloat, all, f32);
  everytype::Double f64;
  advise(*stub, &EveryType::Stub::askDouble, all, f64);
  everytype::Bool flag;
  advise(*stub, &EveryType::Stub::askBool, all, flag);
  std::printf("%d %lld %.9g %.17g %d ", i32.value(), static_cast<long long>(i64.value()),
              static_cast<double>(f32.value()), f64.value(), flag.value() ? 1 : 0);

  everytype::Int32s i32s;
  advise(*stub, &EveryType::Stub::askInt32s, all, i32s);
  for (const int element : i32s.value())
    std::printf("%d ", element);
  everytype::Int64s i64s;
  advise(*stub, &EveryType::Stub::askInt64s, all, i64s);
  for (const auto element : i64s.value())
    std::printf("%lld ", static_cast<long long>(element));
  everytype::Floats f32s;
  advise(*stub, &EveryType::Stub::askFloats, all, f32s);
  for (const float element : f32s.value())
    std::printf("%.9g ", static_cast<double>(element));
  everytype::Doubles f64s;
  advise(*stub, &EveryType::Stub::askDoubles, all, f64s);
  for (const double element : f64s.value())
    std::printf("%.17g ", element);

  all.clear_i32s();
  advise(*stub, &EveryType::Stub::askInt32s, all, i32s);
  std::printf("%d\n", i32s.value_size());
}

/// Asks for passes until −1 comes.
void passes(const std::shared_ptr<grpc::Channel> &channel, int number) {
  using passsequence::PassSequence;
  const std::unique_ptr<PassSequence::Stub> stub = PassSequence::NewStub(channel);
  passsequence::State state;
  passsequence::Pass pass;
  for (int step = 0; step < 100; ++step) {
    state.clear_embedding();
    for (int element = 0; element < 300; ++element)
      state.add_embedding(static_cast<float>(number));
    advise(*stub, &PassSequence::Stub::getAdvice, state, pass);
    std::printf("%d ", pass.action());
    if (pass.action() == -1)
      break;
  }
  std::printf("\n");
}

/// Asks for the order of one loop.
void loops(const std::shared_ptr<grpc::Channel> &channel, int number) {
  using loopdistribution::LoopDistribution;
  const std::unique_ptr<LoopDistribution::Stub> stub = LoopDistribution::NewStub(channel);
  loopdistribution::Graph graph;
  for (int node = 0; node < number; ++node)
    graph.mutable_rdg()->append("node;");
  loopdistribution::Order order;
  advise(*stub, &LoopDistribution::Stub::getAdvice, graph, order);
  for (const int node : order.action())
    std::printf("%d ", node);
  std::printf("\n");
}

/// Allocates two functions in one process: each starts a session and ends it.
void registers(const std::shared_ptr<grpc::Channel> &channel, int number) {
  using registerallocation::RegisterAllocation;
  const std::unique_ptr<RegisterAllocation::Stub> stub = RegisterAllocation::NewStub(channel);
  registerallocation::Colours colours;
  for (const char *name : {"first", "second"}) {
    registerallocation::Function function;
    function.set_name(name);
    for (int id = 0; id < number; ++id) {
      registerallocation::Function::Register *reg = function.add_registers();
      reg->set_id(id);
      reg->set_weight(0.5F);
      reg->set_kind("GR64");
      for (int other = 0; other < id; ++other)
        reg->add_interferences(other);
      for (int row = 0; row <= id % 3; ++row) {
        registerallocation::Function::Vector *vector = reg->add_vectors();
        for (int element = 0; element < row; ++element)
          vector->add_elements(id + element / 2.0);
      }
    }
    for (int step = 0; step < 3; ++step) {
      function.set_new_(step == 0);
      function.set_result(step == 2);
      advise(*stub, &RegisterAllocation::Stub::getAdvice, function, colours);
      for (const int colour : colours.colours())
        std::printf("%d ", colour);
    }
  }
  std::printf("\n");
}

} // namespace

int main(int argc, char **argv) {
  if (argc != 4)
    return 2;
  const std::string what = argv[1];
  const int number = std::atoi(argv[3]);
  const std::shared_ptr<grpc::Channel> channel = grpc::CreateChannel(argv[2], grpc::InsecureChannelCredentials());
  if (what == "types")
    types(channel, number);
  else if (what == "passes")
    passes(channel, number);
  else if (what == "loops")
    loops(channel, number);
  else if (what == "registers")
    registers(channel, number);
  else
    return 2;
  return 0;
}
