#ifndef POLICYBRIDGE_LLVM_PASS_GATE_H
#define POLICYBRIDGE_LLVM_PASS_GATE_H

#include "module_passes.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/OptBisect.h"
#include "llvm/IR/ValueHandle.h"
#include "llvm/Support/CommandLine.h"

#include <memory>
#include <string>

namespace llvm {
class Function;
class LLVMContext;
class Module;
} // namespace llvm

namespace policybridge::plugin {

/// Answers for a store where code generation asks whether an optional pass runs on a function. What LLVM has in this
/// place for itself, as -opt-bisect-limit, is asked too, and a pass runs if both let it.
class PassGate final : public llvm::OptPassGate {
public:
  /// Answer for a module from now on, until it is gone or another module of the context begins.
  ///
  /// `may_set`: whether the process optimises one module at a time, so that options of LLVM, which are the process's, may
  /// be set for a function.
  static void answer_for(llvm::Module &module, std::shared_ptr<ModulePasses> passes, bool may_set);

  /// Read the functions of a module anew: LLVM's last passes remove some after `answer_for`.
  static void changed(llvm::Module &module);

  /// Answer for no module of this context any more.
  static void answer_for_none(llvm::LLVMContext &context);

  /// Whether a function that code generation has reached is to have LLVM's basic register allocator.
  static bool is_allocated_basically(const llvm::Function &function);

  bool isEnabled() const override { return passes_ || before_.isEnabled(); }
#if LLVM_VERSION_MAJOR < 22
  bool shouldRunPass(llvm::StringRef pass, llvm::StringRef description) override {
    return should_run(pass, description);
  }
#else
  bool shouldRunPass(llvm::StringRef pass, llvm::StringRef description) const override {
    return should_run(pass, description);
  }
#endif

private:
  explicit PassGate(llvm::OptPassGate &before) : before_(before) {}

  static PassGate &of(llvm::LLVMContext &context);

  bool should_run(llvm::StringRef pass, llvm::StringRef description) const;
  /// Count the choices for functions that were not there before.
  void count_made(const llvm::Module &module);
  void order(llvm::Module &module);
  llvm::StringRef function_in(llvm::StringRef description) const;

  llvm::OptPassGate &before_;
  std::shared_ptr<ModulePasses> passes_;
  bool may_set_ = false;
  llvm::WeakVH first_;                     // of the module's functions; null when the module is gone
  llvm::StringMap<std::string> following_; // the function that code generation reaches behind each; "" is before all
  mutable std::string current_;            // the last function that LLVM named
  mutable bool is_known_ = false;          // whether the module has it
};

} // namespace policybridge::plugin

#endif
