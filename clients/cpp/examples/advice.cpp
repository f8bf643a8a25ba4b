// Asks a policy whether to inline a call:
//   c++ -std=c++17 -o advice advice.cpp $(pkg-config --cflags --libs policybridge)
//   ./advice socket:policybridge.sock POLICY
//
// The policy decides by `cost_estimate` alone, or fills what else it takes: it is told no other feature here.

#include <policybridge/policybridge.h>

#include <cstdio>

using namespace policybridge;

int main(int count, char **words) {
  if (count != 3) {
    std::fprintf(stderr, "usage: advice ADDRESS POLICY\n");
    return 2;
  }
  const std::int64_t cost = 100;

  // Where there is no advice, the compiler's own heuristic decides.
  RunnerOptions options;
  options.fallback = [&](const Status &why, Tensor &advice) -> Status {
    std::fprintf(stderr, "no advice: %s\n", why.message().c_str());
    *advice.data<std::int64_t>() = cost < 225;
    return {};
  };

  auto runner = ModelRunner::open(words[1], words[2], {TensorSpec::of<std::int64_t>("cost_estimate")},
                                  TensorSpec::of<std::int64_t>("decision"), {}, options);
  if (!runner.ok()) {
    std::fprintf(stderr, "%s\n", runner.status().message().c_str());
    return 1;
  }
  *(*runner)->feature<std::int64_t>(0) = cost;
  const Result<std::int64_t> decision = (*runner)->evaluate<std::int64_t>();
  if (!decision.ok()) {
    std::fprintf(stderr, "%s\n", decision.status().message().c_str());
    return 1;
  }
  std::puts(*decision ? "inline" : "call");
}
