#ifndef POLICYBRIDGE_ONNX_BINDING_H
#define POLICYBRIDGE_ONNX_BINDING_H

#include "model.h"

#include "policybridge/span.h"

#include <cstddef>
#include <vector>

namespace policybridge {

/// Converts between the shapes of a client's tensor and a model's. LLVM writes scalars as [1] and vectors as [1, n];
/// exported models often leave out that leading 1, and put a batch dimension in front.
struct Reshaping {
  std::size_t dropped = 0; ///< leading dimensions of the given shape, all of size 1
  std::size_t added = 0;   ///< ones in their place

  void apply(Span<const std::int64_t> given, std::vector<std::int64_t> &made) const;
};

/// Whether a value of the shape `given` fits the declared shape `wanted`, in which −1 stands for any size.
bool shape_fits(Span<const std::int64_t> wanted, Span<const std::int64_t> given);

/// The binding of a client's signature to a model's inputs and output.
struct OnnxBinding {
  /// For each of the model's inputs, in order.
  struct Input {
    std::size_t feature;
    Reshaping reshaping;
  };
  std::vector<Input> inputs;
  OnnxValueInfo output;
  /// From the output's shape to the advice's.
  Reshaping advice;
};

/// Bind by name. InvalidArgument: an input is not among the features, or a type or shape does not fit; both specs are
/// named.
Result<OnnxBinding> bind(const Signature &client, const OnnxModel &model);

} // namespace policybridge

#endif
