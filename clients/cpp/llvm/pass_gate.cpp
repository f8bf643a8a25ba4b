#include "pass_gate.h"

#include "register_allocation.h"

#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"

#include <map>
#include <mutex>

using namespace llvm;

namespace policybridge::plugin {
namespace {

/// The gates of a process by their contexts. A context does not own its gate, and tells nobody when it ends; code is
/// generated after all other objects of a plugin are destroyed. So gates stay, one for each context that had choices.
struct Gates {
  std::mutex mutex;
  std::map<const LLVMContext *, std::unique_ptr<PassGate>> by_context;

  static Gates &all() {
    static auto *gates = new Gates;
    return *gates;
  }
};

/// The names and values of a switch's options.
SmallVector<std::pair<StringRef, StringRef>> options_of(const KnownSwitch &option) {
  SmallVector<StringRef> words;
  StringRef(option.options.data(), option.options.size()).split(words, ' ');
  SmallVector<std::pair<StringRef, StringRef>> options;
  for (const StringRef word : words)
    options.push_back(word.contains('=') ? word.split('=') : std::pair<StringRef, StringRef>(word, "true"));
  return options;
}

void set_options(const KnownSwitch &option) {
  for (const auto &[name, value] : options_of(option))
    cl::getRegisteredOptions().lookup(name)->addOccurrence(0, name, value);
}

void reset_options(const KnownSwitch &option) {
  for (const auto &[name, value] : options_of(option))
    cl::getRegisteredOptions().lookup(name)->reset();
}

/// Whether LLVM has all options of a switch, and the command line sets none of them.
bool can_set(const KnownSwitch &option) {
  return all_of(options_of(option), [](const auto &each) {
    const cl::Option *found = cl::getRegisteredOptions().lookup(each.first);
    return found && !found->getNumOccurrences();
  });
}

/// The switches that are set in this process, to which options belong. Gates take turns: only a process that compiles one
/// module at a time sets any.
class ProcessSwitches {
public:
  /// Set the switches of the next passes, and the options of the ones before back.
  static void set(ModulePasses::Switches switches) {
    static ProcessSwitches process;
    const std::lock_guard lock(process.mutex_);
    if (switches == process.asked_)
      return;
    for (const KnownSwitch *option : process.set_)
      reset_options(*option);
    process.set_.clear();
    for (const KnownSwitch *option : switches)
      if (can_set(*option)) {
        set_options(*option);
        process.set_.push_back(option);
      }
    process.asked_ = std::move(switches);
  }

private:
  std::mutex mutex_;
  ModulePasses::Switches asked_, set_;
};

} // namespace

PassGate &PassGate::of(LLVMContext &context) {
  Gates &gates = Gates::all();
  const std::lock_guard lock(gates.mutex);
  std::unique_ptr<PassGate> &gate = gates.by_context[&context];
  // Another context may have been at this address.
  if (!gate || &context.getOptPassGate() != gate.get()) {
    gate.reset(new PassGate(context.getOptPassGate()));
    context.setOptPassGate(*gate);
  }
  return *gate;
}

void PassGate::answer_for(Module &module, std::shared_ptr<ModulePasses> passes, bool may_set) {
  PassGate &gate = of(module.getContext());
  gate.passes_ = std::move(passes);
  gate.may_set_ = may_set;
  ProcessSwitches::set({});
  choose_no_allocators();
  if (may_set && gate.passes_->chooses_allocators())
    choose_allocators(module);
  gate.current_.clear();
  gate.order(module);
}

void PassGate::changed(Module &module) {
  Gates &gates = Gates::all();
  const std::lock_guard lock(gates.mutex);
  const auto gate = gates.by_context.find(&module.getContext());
  if (gate == gates.by_context.end() || !gate->second->passes_)
    return;
  gate->second->count_made(module);
  gate->second->order(module);
}

void PassGate::count_made(const Module &module) {
  for (const Function &function : module)
    if (!function.isDeclaration() && !following_.contains(function.getName()))
      passes_->count_made(function.getName(), may_set_);
}

void PassGate::order(Module &module) {
  following_.clear();
  first_ = nullptr;
  std::string last;
  for (Function &function : module)
    if (!function.isDeclaration()) {
      if (!first_)
        first_ = &function;
      following_[last] = function.getName().str();
      last = function.getName().str();
    }
  following_[last] = "";
  is_known_ = following_.contains(current_);
}

void PassGate::answer_for_none(LLVMContext &context) {
  // A linker may have set some for the merged module before it optimises others.
  ProcessSwitches::set({});
  choose_no_allocators();
  Gates &gates = Gates::all();
  const std::lock_guard lock(gates.mutex);
  const auto found = gates.by_context.find(&context);
  if (found != gates.by_context.end() && &context.getOptPassGate() == found->second.get())
    found->second->passes_.reset();
}

bool PassGate::is_allocated_basically(const Function &function) {
  Gates &gates = Gates::all();
  const std::lock_guard lock(gates.mutex);
  const auto gate = gates.by_context.find(&function.getContext());
  return gate != gates.by_context.end() && gate->second->passes_ && !function.hasOptNone() &&
         gate->second->following_.contains(function.getName()) &&
         gate->second->passes_->is_allocated_basically(function.getName());
}

/// The function of the module that LLVM asks about; empty for one of another module.
///
/// LLVM names no function where it asks about a loop. Code generation takes one function after another, in the module's
/// order, and asks about loops before it names their function.
StringRef PassGate::function_in(StringRef description) const {
  if (description.consume_front("function (") && description.consume_back(")")) {
    if (description != current_) {
      current_ = description.str();
      is_known_ = following_.contains(current_);
    }
    return is_known_ ? StringRef(current_) : StringRef();
  }
  if (description != "loop")
    return {};
  const auto next = following_.find(current_);
  return next == following_.end() ? StringRef() : StringRef(next->second);
}

bool PassGate::should_run(StringRef pass, StringRef description) const {
  bool runs = !before_.isEnabled() || before_.shouldRunPass(pass, description);
  if (!passes_ || !first_)
    return runs;
  const StringRef function = function_in(description);
  if (function.empty())
    return runs;
  if (may_set_)
    ProcessSwitches::set(runs ? passes_->switches_for(function, pass) : ModulePasses::Switches());
  runs &= passes_->should_run(KnownPass::Stage::codegen, function, pass);
  if (PassLog *log = passes_->log())
    log->add_codegen(function, pass, runs);
  return runs;
}

} // namespace policybridge::plugin
