#ifndef POLICYBRIDGE_ONNX_BINDING_H
#define POLICYBRIDGE_ONNX_BINDING_H

#include "model.h"

#include "policybridge/span.h"

#include <cstddef>
#include <vector>

namespace policybridge {

/// How a value of one side's spec is seen by the other. LLVM writes scalars as [1] and vectors as [1, n]; exported
/// models often leave that leading 1 out, and have a dimension for batches in front.
struct Reshaping {
  std::size_t dropped = 0; ///< leading dimensions of the given shape, all of size 1
  std::size_t added = 0;   ///< ones in their place

  void apply(Span<const std::int64_t> given, std::vector<std::int64_t> &made) const;
};

/// Whether a value of shape `given` may stand where `wanted` is declared (−1 takes any size).
bool shape_fits(Span<const std::int64_t> wanted, Span<const std::int64_t> given);

/// How one client's signature meets a model's.
struct OnnxBinding {
  /// For each of the model's inputs, in order.
  struct Input {
    std::size_t feature;
    Reshaping reshaping;
  };
  std::vector<Input> inputs;
  OnnxPort output;
  /// From the output's shape to the advice's.
  Reshaping advice;
};

/// Bind by name. InvalidArgument: an input is not among the features, or a type or shape does not fit; both specs are
/// named.
Result<OnnxBinding> bind(const Signature &client, const OnnxModel &model);

} // namespace policybridge

#endif
