#include "register_allocation.h"

#include "module_stage.h"
#include "pass_gate.h"
#include "process_names.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/CodeGen/Passes.h"
#include "llvm/CodeGen/RegAllocRegistry.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/Module.h"
#include "llvm/Pass.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/TargetParser/Triple.h"

#include <memory>
#include <mutex>

namespace llvm {
// LLVM's own, declared weak: a program that generates no code may lack them.
__attribute__((weak)) FunctionPass *createBasicRegisterAllocator();
__attribute__((weak)) FunctionPass *createGreedyRegisterAllocator();
} // namespace llvm

using namespace llvm;

namespace policybridge::plugin {
namespace {

/// LLVM's greedy allocator and its basic one in the place of one pass. LLVM knows this pass alone: the allocators find
/// the analyses that it was given.
class ChosenAllocator final : public FunctionPass {
public:
  ChosenAllocator() : FunctionPass(id), greedy_(createGreedyRegisterAllocator()), basic_(createBasicRegisterAllocator()) {}

  StringRef getPassName() const override { return greedy_->getPassName(); }

  void getAnalysisUsage(AnalysisUsage &usage) const override {
    greedy_->getAnalysisUsage(usage);
    basic_->getAnalysisUsage(usage);
  }

  bool runOnFunction(Function &function) override {
    FunctionPass &allocator = PassGate::is_allocated_basically(function) ? *basic_ : *greedy_;
    if (!allocator.getResolver())
      resolve(allocator);
    return allocator.runOnFunction(function);
  }

#if LLVM_VERSION_MAJOR < 22
  // LLVM 22 has no such function of its own, and must load this plugin to hear that it is another major's.
  void *getAdjustedAnalysisPointer(AnalysisID) override { return this; }
#endif

  void releaseMemory() override {
    greedy_->releaseMemory();
    basic_->releaseMemory();
  }

private:
  void resolve(FunctionPass &allocator) const {
    AnalysisUsage usage;
    allocator.getAnalysisUsage(usage);
    auto resolver = std::make_unique<AnalysisResolver>(getResolver()->getPMDataManager());
    for (const AnalysisID wanted : usage.getRequiredSet())
      if (Pass *found = getResolver()->findImplPass(wanted))
        resolver->addAnalysisImplsPair(wanted, found);
    allocator.setResolver(resolver.release()); // which the pass owns
  }

  static char id;

  std::unique_ptr<FunctionPass> greedy_, basic_;
};

char ChosenAllocator::id = 0;

FunctionPass *create_allocator();

/// LLVM's constructor of allocators, which belongs to the process.
class Allocators {
public:
  static Allocators &all() {
    static auto *allocators = new Allocators;
    return *allocators;
  }

  void choose() {
    const std::lock_guard lock(mutex_);
    if (RegisterRegAlloc::getDefault() == create_allocator)
      return;
    before_ = RegisterRegAlloc::getDefault();
    RegisterRegAlloc::setDefault(create_allocator);
  }

  void choose_none() {
    const std::lock_guard lock(mutex_);
    if (RegisterRegAlloc::getDefault() == create_allocator)
      RegisterRegAlloc::setDefault(before_ ? before_ : find_default());
  }

private:
  /// What LLVM puts in the place of no constructor, once, when it first needs one.
  static RegisterRegAlloc::FunctionPassCtor find_default() {
    for (const RegisterRegAlloc *each = RegisterRegAlloc::getList(); each; each = each->getNext())
      if (each->getName() == "default")
        return each->getCtor();
    return nullptr;
  }

  std::mutex mutex_;
  RegisterRegAlloc::FunctionPassCtor before_ = nullptr;
};

/// For one code generation: that of another module may be without optimisation, where LLVM has the fast allocator.
FunctionPass *create_allocator() {
  Allocators::all().choose_none();
  return new ChosenAllocator;
}

/// Whether the program has both allocators.
bool has_allocators() {
  const RegisterRegAlloc::FunctionPassCtor basic = createBasicRegisterAllocator, greedy = createGreedyRegisterAllocator;
  return basic && greedy;
}

bool is_on_command_line(StringRef option) {
  const auto found = cl::getRegisteredOptions().find(option);
  return found != cl::getRegisteredOptions().end() && found->second->getNumOccurrences();
}

/// Whether a linker may have been told to generate code without optimisation, or in several threads. The words of a
/// response file are not known.
bool may_generate_otherwise() {
  return any_of(own_command(), [](const StringRef word) {
    return word.starts_with("@") || word.contains("lto-CGO0") || word.contains("lto-partitions");
  });
}

} // namespace

void choose_allocators(const Module &module) {
  if (has_allocators() && Triple(module.getTargetTriple()).getArch() == Triple::x86_64 && !is_of_rustc(module) && !may_generate_otherwise() &&
      !is_on_command_line("regalloc") && !is_on_command_line("optimize-regalloc"))
    Allocators::all().choose();
}

void choose_no_allocators() { Allocators::all().choose_none(); }

} // namespace policybridge::plugin
