#ifndef POLICYBRIDGE_LLVM_MODULE_PASSES_H
#define POLICYBRIDGE_LLVM_MODULE_PASSES_H

#include "pass_log.h"

#include "pass_choices.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"

#include <map>
#include <memory>
#include <vector>

namespace llvm {
class Module;
} // namespace llvm

namespace policybridge::plugin {

/// The choices about the passes of one module's functions, and the log of the passes that LLVM asked about. It lives from
/// the start of the module's pipeline to the end of its code generation.
class ModulePasses {
public:
  /// `log` may be null.
  ModulePasses(std::vector<PassChoice> choices, std::unique_ptr<PassLog> log);

  /// Whether an optional pass runs on a function; LLVM asks this once before each run. `name` is LLVM's own for the pass.
  bool should_run(KnownPass::Stage stage, llvm::StringRef function, llvm::StringRef name);

  /// The pipelines to add to a function at a point, in the order of their table.
  std::vector<const KnownPipeline *> added(llvm::StringRef function, PassChoice::Point point);

  /// The pipelines to add to the module, in the order of their table.
  std::vector<const KnownPipeline *> added_to_module();

  /// Whether a function is exempt from a pipeline that is added to the module.
  bool is_kept_from(llvm::StringRef function, const KnownPipeline &pipeline);

  using Switches = llvm::SmallVector<const KnownSwitch *, 4>;

  /// The switches that are set for a function from a pass on, until LLVM asks about the next one.
  Switches switches_for(llvm::StringRef function, llvm::StringRef pass);

  /// Whether any function has a choice of its register allocator.
  bool chooses_allocators() const;

  /// Whether a function has the switch of LLVM's basic register allocator.
  bool is_allocated_basically(llvm::StringRef function);

  /// Whether code generation has to ask: there are choices for it, or there is a log.
  bool is_asked_in_codegen() const;

  /// Count the choices for code generation as applied if their functions are in the module, which is now complete; those
  /// of switches only where these are set.
  void count_codegen(const llvm::Module &module, bool sets_switches);

  /// Count the choices for a function as applied that a later pass made, as sanitizers do. A search chooses groups for it,
  /// of which only those for code generation change it.
  void count_made(llvm::StringRef function, bool sets_switches);

  /// Whether there are choices of switches that are not set.
  bool lacks_switches() const { return lacks_switches_; }

  /// How many choices there are, and how many of them applied.
  std::size_t size() const { return rows_.size(); }
  std::size_t applied() const;

  /// The log; null where it is not asked for.
  PassLog *log() { return log_.get(); }

private:
  struct Row {
    PassChoice choice;
    const KnownPass *pass; // that is skipped, or that reads a switch; null for a switch that no optional pass reads
    bool applied = false;
  };

  struct OfFunction {
    std::vector<Row *> rows;
    std::map<const KnownPass *, unsigned> runs;
  };

  OfFunction &choices_of(llvm::StringRef function);
  std::vector<Row *> rows_for(std::uint64_t function);

  std::vector<Row> rows_;
  bool lacks_switches_ = false;
  std::map<std::uint64_t, std::vector<Row *>> by_function_;
  llvm::StringMap<OfFunction> functions_;
  llvm::StringMapEntry<OfFunction> *last_ = nullptr; // of functions_; LLVM asks about one function many times
  std::unique_ptr<PassLog> log_;
};

} // namespace policybridge::plugin

#endif
