// Asks through LLVM's own class: `llvm_runner ADDRESS POLICY A B [FALLBACK]` prints the policy's advice on A and B.

#include "policybridge/llvm_model_runner.h"

#include "llvm/Support/raw_ostream.h"

#include <cstdlib>

using namespace policybridge;

int main(int count, char **words) {
  if (count < 5)
    return 2;
  const std::vector<llvm::TensorSpec> features = {llvm::TensorSpec::createSpec<int64_t>("a", {1}),
                                                  llvm::TensorSpec::createSpec<float>("unknown", {1, 33}),
                                                  llvm::TensorSpec::createSpec<int64_t>("b", {1})};
  RunnerOptions runner_options;
  if (count > 5)
    runner_options.fallback = [words](const Status &, Tensor &advice) {
      *advice.data<std::int64_t>() = std::atoll(words[5]);
      return Status();
    };
  Result<std::shared_ptr<Connection>> connection = connect(words[1]);
  OpenOptions options;
  options.policy.name = words[2];
  llvm::LLVMContext context;
  auto opened = LlvmModelRunner::open(context, *connection, options, features,
                                      llvm::TensorSpec::createSpec<int64_t>("sum", {1}), runner_options);
  if (!opened.ok()) {
    llvm::errs() << opened.status().message() << "\n";
    return 1;
  }
  llvm::MLModelRunner &runner = **opened;
  runner.switchContext("f");
  *runner.getTensor<int64_t>(0) = std::atoll(words[3]);
  *runner.getTensor<int64_t>(2) = std::atoll(words[4]);
  llvm::outs() << runner.evaluate<int64_t>() << "\n";
}
