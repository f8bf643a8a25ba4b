#ifndef POLICYBRIDGE_ONNX_SESSION_H
#define POLICYBRIDGE_ONNX_SESSION_H

#include "binding.h"

#include "policybridge/session.h"
#include "policybridge/tensor.h"

namespace policybridge {

/// A session with a model in this process; see `Session`. Any error ends it.
class OnnxSession final : public Session {
public:
  /// InvalidArgument: the signature does not fit the model.
  static Result<std::unique_ptr<Session>> open(std::shared_ptr<const OnnxModel> model, const Signature &signature);

  Result<SessionInfo> info() const override;
  Status evaluate(std::uint64_t step, std::string_view observation, AdviceBuffer &advice) override;
  Status set_context(std::string_view name) override;
  Status report(const Outcome &outcome) override;
  bool is_open() const noexcept override { return over_.ok(); }
  void close() noexcept override;

private:
  OnnxSession(std::shared_ptr<const OnnxModel> model, const Signature &signature, OnnxBinding binding);

  Status answer(std::string_view observation, AdviceBuffer &advice);
  Status read(std::string_view observation);
  Status feed(std::size_t input);
  Status feed_texts(const Tensor &feature, ort::OwnedValue &value);
  Status take(ort::Value *output, std::vector<char> &advice);
  Status take_shape(const ort::TensorInfo *info, std::size_t &count, std::vector<char> &advice);
  Status take_texts(ort::Value *output, std::size_t count, std::vector<char> &advice);

  const std::shared_ptr<const OnnxModel> model_;
  const OnnxRuntime &runtime_;
  const OnnxBinding binding_;
  const TensorSpec advice_;
  std::vector<Tensor> features_;
  std::vector<const char *> names_;
  std::vector<ort::OwnedValue> values_; // of fixed features once for all: they view `features_`
  std::vector<const ort::Value *> fed_;
  std::vector<std::int64_t> shape_; // kept, so that nothing is allocated per decision
  Status over_;
};

} // namespace policybridge

#endif
