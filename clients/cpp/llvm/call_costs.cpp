#include "call_costs.h"

#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/GlobalVariable.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Operator.h"
#include "llvm/TargetParser/Triple.h"

using namespace llvm;

namespace policybridge::plugin {
namespace {

/// Costs that are kept of one function's calls.
constexpr std::size_t most_kept = 64;

/// How the callee gets an argument.
enum class Given : std::uint64_t { Unknown, Number, Global, Local, Pointer };

/// A pointer without its constant offsets.
struct Place {
  const Value *base;
  std::int64_t offset;
};

/// As LLVM's measuring strips them (`stripAndComputeInBoundsConstantOffsets`); nothing where it gives up.
std::optional<Place> place_of(const Value *pointer, const DataLayout &layout) {
  APInt offset(layout.getIndexTypeSizeInBits(pointer->getType()), 0);
  while (const auto *step = dyn_cast<GEPOperator>(pointer)) {
    if (!step->isInBounds() || !step->accumulateConstantOffset(layout, offset))
      return std::nullopt;
    // It ends: only in a block that cannot be reached may a step lead to itself, and LLVM asks for no call there.
    pointer = step->getPointerOperand();
  }
  return Place{pointer, offset.getSExtValue()};
}

/// Whether LLVM's measuring asks these targets for nothing that depends on the caller.
bool is_plain(const Triple &target) {
  return target.isX86() || target.isAArch64() || target.isRISCV() || target.isARM() || target.isThumb();
}

/// Whether a function is called by itself, and by the callee of a call in it.
struct Callers {
  bool itself = false;
  bool callee = false;
};

Callers callers_of(const Function &function, const Function &callee) {
  Callers found;
  for (const User *user : function.users())
    if (const auto *call = dyn_cast<CallBase>(user)) {
      found.itself |= call->getFunction() == &function;
      found.callee |= call->getFunction() == &callee;
    }
  return found;
}

bool may_grow(const CallBase &call) {
  const auto *invoke = dyn_cast<InvokeInst>(&call);
  const BasicBlock *next = invoke ? invoke->getNormalDest() : call.getParent();
  return !isa<UnreachableInst>(next->getTerminator());
}

/// Writes the circumstances of one call; it fails where they are more than it can name.
class Description {
public:
  explicit Description(const CallBase &call) : call_(call), layout_(call.getModule()->getDataLayout()) {}

  std::optional<MeasuredCalls::Circumstances> made() {
    const Function &caller = *call_.getCaller(), &callee = *call_.getCalledFunction();
    const Callers callers = callers_of(caller, callee);
    // Callees that call the caller are measured otherwise, and a limit for the stack may be the caller's own.
    if (callers.callee || call_.hasOperandBundles() || caller.hasFnAttribute("inline-max-stacksize"))
      return std::nullopt;
    words_.push_back(reinterpret_cast<std::uintptr_t>(call_.getAttributes().getRawPointer()));
    const bool is_last = callee.hasLocalLinkage() && callee.hasOneLiveUse();
    words_.push_back(call_.getOpcode() << 5 | callers.itself << 4 | may_grow(call_) << 3 | caller.hasMinSize() << 2 |
                     caller.hasOptSize() << 1 | is_last);
    for (const Value *argument : call_.args())
      if (!add(*argument))
        return std::nullopt;
    return std::move(words_);
  }

private:
  /// Whether LLVM's context keeps the constant to its own end. The address of another one may be used again.
  static bool lasts(const Value &value) {
    return isa<ConstantInt>(value) || isa<ConstantFP>(value) || isa<ConstantPointerNull>(value) ||
           isa<UndefValue>(value);
  }

  bool add(const Value &argument) {
    const Type &type = *argument.getType();
    if (lasts(argument))
      return add(Given::Number, reinterpret_cast<std::uintptr_t>(&argument));
    if (type.isPointerTy())
      return add_pointer(argument);
    // LLVM looks into aggregates of the caller.
    return !isa<Constant>(argument) && (type.isIntegerTy() || type.isFloatingPointTy()) && add(Given::Unknown);
  }

  bool add_pointer(const Value &argument) {
    const std::optional<Place> place = place_of(&argument, layout_);
    if (isa<Constant>(argument))
      return place && isa<GlobalVariable>(place->base) &&
             add(Given::Global, reinterpret_cast<std::uintptr_t>(place->base), place->offset);
    if (!place)
      return add(Given::Unknown);
    if (isa<Constant>(place->base))
      return false;
    // The base itself is the caller's; only which arguments share it counts, and how far apart they are.
    const auto first = find_if(seen_, [&](const Place &each) { return each.base == place->base; });
    const auto number = static_cast<std::uint64_t>(first - seen_.begin());
    const std::int64_t apart = first == seen_.end() ? 0 : place->offset - first->offset;
    seen_.push_back(*place);
    return add(isa<AllocaInst>(place->base) ? Given::Local : Given::Pointer, number, apart);
  }

  bool add(Given given, std::uint64_t word = 0, std::int64_t offset = 0) {
    words_.insert(words_.end(), {static_cast<std::uint64_t>(given), word, static_cast<std::uint64_t>(offset)});
    return true;
  }

  const CallBase &call_;
  const DataLayout &layout_;
  MeasuredCalls::Circumstances words_;
  std::vector<Place> seen_;
};

CallCosts measured(CallBase &call, FunctionAnalysisManager &analyses, bool estimates) {
  TargetTransformInfo &target = analyses.getResult<TargetIRAnalysis>(*call.getCalledFunction());
  const auto assumptions = [&](Function &function) -> AssumptionCache & {
    return analyses.getResult<AssumptionAnalysis>(function);
  };
  CallCosts costs;
  if (estimates)
    costs.estimate = getInliningCostEstimate(call, target, assumptions);
  costs.features = getInliningCostFeatures(call, target, assumptions);
  return costs;
}

} // namespace

MeasuredCalls::Result MeasuredCalls::run(Function &function, FunctionAnalysisManager &) {
  return {is_plain(Triple(function.getParent()->getTargetTriple())), {}};
}

CallCosts costs_of(CallBase &call, FunctionAnalysisManager &analyses, bool estimates) {
  MeasuredCalls::Result &callee = analyses.getResult<MeasuredCalls>(*call.getCalledFunction());
  std::optional<MeasuredCalls::Circumstances> circumstances;
  if (callee.is_plain)
    circumstances = Description(call).made();
  if (!circumstances)
    return measured(call, analyses, estimates);
  if (const auto found = callee.costs.find(*circumstances); found != callee.costs.end())
    return found->second;
  CallCosts costs = measured(call, analyses, estimates);
  if (callee.costs.size() < most_kept)
    callee.costs.emplace(*std::move(circumstances), costs);
  return costs;
}

void forget_costs(Function &function, FunctionAnalysisManager &analyses) {
  if (auto *measured = analyses.getCachedResult<MeasuredCalls>(function))
    measured->costs.clear();
}

} // namespace policybridge::plugin
