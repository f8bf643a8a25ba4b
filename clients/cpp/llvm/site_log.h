#ifndef POLICYBRIDGE_LLVM_SITE_LOG_H
#define POLICYBRIDGE_LLVM_SITE_LOG_H

#include "call_sites.h"

#include "policybridge/status.h"

#include "llvm/Analysis/InlineCost.h"
#include "llvm/IR/PassManager.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace llvm {
class BasicBlock;
}

namespace policybridge::plugin {

/// Every call that LLVM asked about, in order, for tools that look for better decisions. site_log.cpp has the format.
class SiteLog {
public:
  /// One decision.
  struct Entry {
    Site site;
    bool own = false;   ///< LLVM's own decision
    bool taken = false; ///< the decision that was given
    /// LLVM's cost and threshold; none where LLVM always or never inlines the call.
    std::optional<llvm::InlineCost> cost;
  };

  /// Add a decision about a call, which has not been inlined yet; gives its number.
  std::size_t add(const llvm::CallBase &call, const Entry &entry);

  /// The call of a decision was inlined, so that this function changed.
  void set_inlined(std::size_t entry, const llvm::Function &caller);

  /// Other passes may have changed all functions.
  void forget_functions() { functions_.clear(); }

  /// Write the file as a whole.
  Status write(const std::string &path, const std::string &first_line) const;

private:
  /// Of a function as it is now.
  struct Shape {
    std::size_t instructions = 0;
    std::size_t blocks = 0;
    std::map<const llvm::BasicBlock *, unsigned> loop_depths; // of the blocks in loops
    bool has_loops = false;                                   // whether `loop_depths` has been computed
  };

  Shape &shape_of(const llvm::Function &function);
  unsigned loop_depth_of(const llvm::CallBase &call);

  std::string lines_;
  std::vector<std::size_t> starts_; // of the lines, by decision
  std::map<const llvm::Function *, Shape> functions_;
};

} // namespace policybridge::plugin

#endif
