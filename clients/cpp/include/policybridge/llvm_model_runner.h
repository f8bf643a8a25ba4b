#ifndef POLICYBRIDGE_LLVM_MODEL_RUNNER_H
#define POLICYBRIDGE_LLVM_MODEL_RUNNER_H

/// A policy on a server as an `llvm::MLModelRunner`, for passes that are built with LLVM 19 or later. This is the only
/// header of the library that needs LLVM's headers. Compile it with LLVM's own flags, mostly -fno-rtti.

#include "policybridge/model_runner.h"

#include "llvm/ADT/Twine.h"
#include "llvm/Analysis/MLModelRunner.h"
#include "llvm/Analysis/TensorSpec.h"
#include "llvm/IR/LLVMContext.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace policybridge {

/// The element type of LLVM's tensor type. InvalidArgument: it has none.
inline Result<ElementType> element_type_of(llvm::TensorType type) {
  switch (type) {
#define POLICYBRIDGE_ELEMENT_TYPE(T, Name)                                                                             \
  case llvm::TensorType::Name:                                                                                         \
    return element_type_of<T>();
    SUPPORTED_TENSOR_TYPES(POLICYBRIDGE_ELEMENT_TYPE)
#undef POLICYBRIDGE_ELEMENT_TYPE
  default:
    return invalid_argument("LLVM's tensor type " + std::to_string(static_cast<int>(type)) + " is unknown");
  }
}

/// LLVM's spec as ours. InvalidArgument: its type is unknown.
inline Result<TensorSpec> tensor_spec_of(const llvm::TensorSpec &spec) {
  const Result<ElementType> type = element_type_of(spec.type());
  if (!type.ok())
    return type.status();
  return TensorSpec{spec.name(), *type, spec.shape()};
}

/// Evaluates a policy where LLVM evaluates a model: `getTensor<T>(index)` gives the runner's own buffers, so that
/// nothing is copied, and `evaluate<T>()` the advice.
///
/// LLVM's interface has no errors. So give the runner a fallback, which decides where there is no advice. Without a
/// fallback, or where it fails too, the failure is an error of the compilation (`LLVMContext::emitError`), and LLVM
/// gets a zero.
class LlvmModelRunner : public llvm::MLModelRunner {
public:
  /// Open a session for LLVM's specs. InvalidArgument: a type is unknown; else as `ModelRunner::open`.
  static Result<std::unique_ptr<LlvmModelRunner>> open(llvm::LLVMContext &context,
                                                       std::shared_ptr<Connection> connection, OpenOptions options,
                                                       const std::vector<llvm::TensorSpec> &features,
                                                       const llvm::TensorSpec &advice, RunnerOptions runner_options) {
    std::vector<TensorSpec> specs;
    for (const llvm::TensorSpec &feature : features) {
      Result<TensorSpec> spec = tensor_spec_of(feature);
      if (!spec.ok())
        return spec.status();
      specs.push_back(std::move(*spec));
    }
    Result<TensorSpec> advice_spec = tensor_spec_of(advice);
    if (!advice_spec.ok())
      return advice_spec.status();
    Result<std::unique_ptr<ModelRunner>> runner =
        ModelRunner::open(std::move(connection), std::move(options), std::move(specs), std::move(*advice_spec),
                          std::move(runner_options));
    if (!runner.ok())
      return runner.status();
    return std::make_unique<LlvmModelRunner>(context, std::move(*runner), features);
  }

  /// Over a runner that is open already, whose features are `features`, in that order.
  LlvmModelRunner(llvm::LLVMContext &context, std::unique_ptr<ModelRunner> runner,
                  const std::vector<llvm::TensorSpec> &features)
      : llvm::MLModelRunner(context, Kind::Release, features.size()), runner_(std::move(runner)),
        zero_(static_cast<std::size_t>(runner_->advice_spec().byte_size()) / sizeof(std::uint64_t) + 1) {
    for (std::size_t n = 0; n < features.size(); ++n)
      setUpBufferForTensor(n, features[n], runner_->tensor(n)->raw());
  }

  /// For outcomes, counts and the version, which LLVM's interface does not have.
  ModelRunner &runner() noexcept { return *runner_; }

  void switchContext(llvm::StringRef name) override {
    if (Status status = runner_->set_context({name.data(), name.size()}); !status.ok())
      Ctx.emitError("policybridge: " + status.message());
  }

private:
  void *evaluateUntyped() override {
    const Result<const Tensor *> advice = runner_->evaluate();
    if (advice.ok())
      return const_cast<void *>((*advice)->raw());
    Ctx.emitError("policybridge: " + advice.status().message());
    std::fill(zero_.begin(), zero_.end(), 0);
    return zero_.data();
  }

  std::unique_ptr<ModelRunner> runner_;
  std::vector<std::uint64_t> zero_;
};

} // namespace policybridge

#endif
