#ifndef POLICYBRIDGE_MLIR_NEST_H
#define POLICYBRIDGE_MLIR_NEST_H

#include "question.h"

// No dialect's header: each takes many seconds to compile.
#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace policybridge::plugin {

/// The loop nest of a linalg operation that can be tiled by any sizes.
struct Nest {
  mlir::Operation *operation;
  /// Where it is: `FUNCTION/linalg.matmul/N`, the Nth operation of that name in the function, from 0.
  std::string site;
  /// The features of the operation; the members that differ by loop are not filled in.
  Question question;

  std::size_t loops() const { return static_cast<std::size_t>(question.loops); }

  /// The size that tiling by `size` comes to: 0 where it is not below the loop's extent.
  std::int64_t effective(std::size_t loop, std::int64_t size) const {
    return size < question.extents[loop] ? size : 0;
  }

  /// The question about a loop, with the tile of those before it.
  Question about(std::size_t loop, const std::vector<std::int64_t> &tile) const;
};

/// Register the dialects that tiling makes operations of, and how linalg operations are tiled.
void register_dialects(mlir::DialectRegistry &registry);

/// The nests of a module, in the order of its text.
///
/// An operation is left out, and stays as it is, if a shape is dynamic or empty, if it has more loops than `most_loops`,
/// mixes tensors and memrefs, has a layout without strides or an encoding, or an indexing map that is no sum of loops
/// times positive factors: upstream's tiling takes the slices of operands from such maps alone.
std::vector<Nest> nests_of(mlir::ModuleOp module);

/// Tile an operation by the effective size of each loop; 0 leaves the loop as it is.
mlir::LogicalResult tile(const Nest &nest, const std::vector<std::int64_t> &sizes);

} // namespace policybridge::plugin

#endif
