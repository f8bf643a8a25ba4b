#ifndef POLICYBRIDGE_MLIR_MODULE_TILING_H
#define POLICYBRIDGE_MLIR_MODULE_TILING_H

#include "advisor.h"
#include "nest.h"

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace policybridge::plugin {

/// A size for each loop of an operation.
using Tile = std::vector<std::int64_t>;

/// The tiling of one module: all operations are decided about, then tiled, then it is reported.
class ModuleTiling {
public:
  /// `invalid`: the error in the settings, after which nobody is asked; Ok where there is none.
  ModuleTiling(mlir::ModuleOp module, const Settings &settings, Status invalid);

  /// Fails, and the module stays as it is, where there is no advice and the default may not stand in.
  mlir::LogicalResult run();

private:
  Tile decide(const Nest &nest);
  Result<Tile> ask(const Nest &nest);
  Result<std::int64_t> place(const Question &question);
  Status begin();
  bool is_asked(const Nest &nest, std::size_t loop) const;
  void report();
  Statistics &statistics() { return advisor_->statistics(); }

  mlir::ModuleOp module_;
  const Settings &settings_;
  const std::string name_;
  const std::chrono::steady_clock::time_point begun_ = std::chrono::steady_clock::now();
  const std::unique_ptr<Advisor> advisor_;
  bool is_open_ = false;
  std::size_t tiled_ = 0; ///< operations with a tile
  bool fatal_ = false;
};

} // namespace policybridge::plugin

#endif
