#ifndef POLICYBRIDGE_ONNX_BINDING_H
#define POLICYBRIDGE_ONNX_BINDING_H

#include "model.h"

#include "policybridge/span.h"

#include <cstddef>
#include <vector>

namespace policybridge {

/// Converts the shape of a client's tensor to that of a model's tensor, or back. LLVM writes scalars as [1] and vectors
/// as [1, n]; exported models often leave out that leading 1, and put a batch dimension in front.
struct Reshaping {
  std::size_t dropped = 0; ///< leading dimensions of the given shape, all of size 1
  std::size_t added = 0;   ///< leading dimensions of size 1 that replace the dropped ones

  void apply(Span<const std::int64_t> given, std::vector<std::int64_t> &made) const;
};

/// Whether a tensor of the shape `given` fits the declared shape `wanted`; −1 in `wanted` fits any size.
bool shape_fits(Span<const std::int64_t> wanted, Span<const std::int64_t> given);

/// The binding of a client's signature to a model's inputs and output.
struct OnnxBinding {
  /// The feature for one input of the model.
  struct Input {
    std::size_t feature;
    Reshaping reshaping;
  };
  std::vector<Input> inputs; ///< in the order of the model's inputs
  OnnxValueInfo output;
  /// Converts the output's shape to the advice's.
  Reshaping advice;
};

/// Bind by name. InvalidArgument if an input is not among the features, or a type or shape does not fit; the message
/// then has both specs.
Result<OnnxBinding> bind(const Signature &client, const OnnxModel &model);

} // namespace policybridge

#endif
