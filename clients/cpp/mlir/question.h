#ifndef POLICYBRIDGE_MLIR_QUESTION_H
#define POLICYBRIDGE_MLIR_QUESTION_H

#include "policybridge/tensor_spec.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace policybridge::plugin {

/// Operations with more loops are not asked about.
inline constexpr std::size_t most_loops = 8;
/// Operands beyond these are not told.
inline constexpr std::size_t most_operands = 4;

/// The kinds of operation that are told apart.
enum class OperationKind : std::int64_t {
  Other = 0,
  Elementwise = 1, ///< all loops are parallel
  Contraction = 2, ///< matmul, batch_matmul, and a generic operation of that form
  Convolution = 3, ///< conv_…, pooling_…, depthwise_conv_…
};

/// The features of one decision, that is, of one loop of one operation. Places that no loop or operand
/// has are 0.
struct Question {
  std::int64_t operation = 0;    ///< the first 8 bytes of the SHA-256 of its name, `linalg.matmul`
  std::int64_t kind = 0;         ///< an `OperationKind`
  std::int64_t element_bits = 0; ///< of the widest operand
  std::int64_t loops = 0;
  std::int64_t loop = 0;     ///< the one that is asked about; 0 is the outermost
  std::int64_t extent = 0;   ///< its number of iterations
  std::int64_t parallel = 0; ///< 1 for a parallel loop, 0 for a reduction
  std::int64_t usual = 0;    ///< the default's place in the list of sizes
  std::array<std::int64_t, most_operands> stride{}; ///< elements between two iterations of the loop in each operand
  std::array<std::int64_t, most_operands> operand_bytes{};
  /// The part of each operand that a tile touches: decided loops count with their tiles, the others in full. A dimension
  /// that several loops move through, as in a convolution, is counted as the product of their lengths.
  std::array<std::int64_t, most_operands> tile_bytes{};
  std::array<std::int64_t, most_loops> extents{};  ///< of all loops
  std::array<std::int64_t, most_loops> parallels{}; ///< of all loops
  std::array<std::int64_t, most_loops> tiles{};     ///< of the loops that were decided; 0: not tiled, or not yet decided
  std::array<std::int64_t, most_operands * most_loops> strides{}; ///< by operand, then by loop

  /// Numbers of int64 in all.
  static constexpr std::size_t count = 8 + 3 * most_operands + 3 * most_loops + most_operands * most_loops;

  const std::int64_t *data() const { return &operation; }
};

static_assert(sizeof(Question) == Question::count * sizeof(std::int64_t), "the members follow each other");

/// The features of a `Question`, in the order of its members.
std::vector<TensorSpec> features_of_question();

/// The name of the advice: a place in the list of sizes.
inline constexpr const char *advice_name = "tile";

} // namespace policybridge::plugin

#endif
