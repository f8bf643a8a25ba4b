#ifndef POLICYBRIDGE_ONNX_MODEL_H
#define POLICYBRIDGE_ONNX_MODEL_H

#include "runtime.h"

#include "policybridge/tensor_spec.h"

#include <optional>
#include <string>
#include <vector>

namespace policybridge {

/// ONNX Runtime's element type; absent for bytes, which ONNX does not have.
std::optional<ort::Element> to_onnx(ElementType type) noexcept;

/// An input or output that the model declares; −1 in its spec is a dimension of open size.
struct OnnxValueInfo {
  TensorSpec spec;
  /// The name (or empty) of the first dimension, where it is open.
  std::optional<std::string> open_first;
};

/// A loaded model. Any number of threads may use it.
class OnnxModel {
public:
  /// FailedPrecondition: the file cannot be loaded, or has an input that no tensor spec describes.
  static Result<std::shared_ptr<const OnnxModel>> load(std::shared_ptr<const OnnxRuntime> runtime,
                                                       const std::string &file);

  const OnnxRuntime &runtime() const noexcept { return *runtime_; }
  /// Not const, because ONNX Runtime takes a writable pointer; threads may share it.
  ort::Session *session() const noexcept { return session_.get(); }
  const std::string &file() const noexcept { return file_; }
  const std::vector<OnnxValueInfo> &inputs() const noexcept { return inputs_; }

  /// The output called `name`, or the only one. FailedPrecondition: neither is there, or no tensor spec describes it.
  Result<OnnxValueInfo> output(const std::string &name) const;

private:
  OnnxModel(std::shared_ptr<const OnnxRuntime> runtime, std::string file)
      : runtime_(std::move(runtime)), file_(std::move(file)) {}
  Status start();
  Status read_ports();
  template <class Entry> Result<std::string> name(std::size_t index) const;
  template <class Entry> Result<OnnxValueInfo> value_info(std::size_t index, std::string name) const;

  const std::shared_ptr<const OnnxRuntime> runtime_;
  const std::string file_;
  ort::OwnedSession session_;
  std::vector<OnnxValueInfo> inputs_;
  std::vector<std::string> outputs_;
};

} // namespace policybridge

#endif
