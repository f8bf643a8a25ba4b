#ifndef POLICYBRIDGE_ONNX_MODEL_H
#define POLICYBRIDGE_ONNX_MODEL_H

#include "runtime.h"

#include "policybridge/tensor_spec.h"

#include <optional>
#include <string>
#include <vector>

namespace policybridge {

/// ONNX Runtime's element type; absent for bytes, which ONNX has not.
std::optional<ort::Element> to_onnx(ElementType type) noexcept;

/// An input or output as the model declares it; its spec's −1 are what the model leaves open.
struct OnnxPort {
  TensorSpec spec;
  /// The name (or empty) of the first dimension, where it is open.
  std::optional<std::string> open_first;
};

/// A loaded model. For several threads.
class OnnxModel {
public:
  /// FailedPrecondition: the file cannot be loaded, or has an input that no tensor spec describes.
  static Result<std::shared_ptr<const OnnxModel>> load(std::shared_ptr<const OnnxRuntime> runtime,
                                                       const std::string &file);

  const OnnxRuntime &runtime() const noexcept { return *runtime_; }
  /// ONNX Runtime wants it writable, and lets threads share it.
  ort::Session *session() const noexcept { return session_.get(); }
  const std::string &file() const noexcept { return file_; }
  const std::vector<OnnxPort> &inputs() const noexcept { return inputs_; }

  /// The output called `name`, or the only one. FailedPrecondition: neither is there, or no tensor spec describes it.
  Result<OnnxPort> output(const std::string &name) const;

private:
  OnnxModel(std::shared_ptr<const OnnxRuntime> runtime, std::string file)
      : runtime_(std::move(runtime)), file_(std::move(file)) {}
  Status start();
  Status read_ports();
  template <class Entry> Result<std::string> name(std::size_t index) const;
  template <class Entry> Result<OnnxPort> port(std::size_t index, std::string name) const;

  const std::shared_ptr<const OnnxRuntime> runtime_;
  const std::string file_;
  ort::OwnedSession session_;
  std::vector<OnnxPort> inputs_;
  std::vector<std::string> outputs_;
};

} // namespace policybridge

#endif
