#include "function_features.h"

#include "module_names.h"
#include "sha256.h"

#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/Analysis/CFG.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"

#include <cstdint>
#include <utility>

using namespace llvm;

namespace policybridge::plugin {
namespace {

/// Counts of a block's instructions and operands. Constants are operands, counted by the bytes that an encoding has for
/// them: one, four or eight.
struct BlockCounts {
  std::int64_t instructions = 0, loads = 0, stores = 0, calls = 0, indirect_calls = 0, intrinsics = 0, phis = 0;
  std::int64_t geps = 0, variable_geps = 0, byte_constants = 0, word_constants = 0, wide_constants = 0, globals = 0;
};

struct Properties {
  std::int64_t function = 0, minsize = 0, optsize = 0, local = 0, arguments = 0, uses = 0;
  std::int64_t blocks = 0, branches = 0, switches = 0, switch_cases = 0, returns = 0, landing_pads = 0;
  std::int64_t critical_edges = 0, largest_block = 0;
  std::int64_t allocas = 0, selects = 0, compares = 0, casts = 0, integer_operations = 0, multiplications = 0;
  std::int64_t float_operations = 0, vector_operations = 0, distinct_constants = 0, distinct_globals = 0;
  std::int64_t loops = 0, top_level_loops = 0, loop_depth = 0, loop_blocks = 0, single_block_loops = 0, loop_exits = 0;
  BlockCounts all, in_loops;
};

using Member = std::int64_t Properties::*;

constexpr std::pair<const char *, Member> members[] = {
    {"function", &Properties::function},
    {"minsize", &Properties::minsize},
    {"optsize", &Properties::optsize},
    {"local", &Properties::local},
    {"arguments", &Properties::arguments},
    {"uses", &Properties::uses},
    {"blocks", &Properties::blocks},
    {"branches", &Properties::branches},
    {"switches", &Properties::switches},
    {"switch_cases", &Properties::switch_cases},
    {"returns", &Properties::returns},
    {"landing_pads", &Properties::landing_pads},
    {"critical_edges", &Properties::critical_edges},
    {"largest_block", &Properties::largest_block},
    {"allocas", &Properties::allocas},
    {"selects", &Properties::selects},
    {"compares", &Properties::compares},
    {"casts", &Properties::casts},
    {"integer_operations", &Properties::integer_operations},
    {"multiplications", &Properties::multiplications},
    {"float_operations", &Properties::float_operations},
    {"vector_operations", &Properties::vector_operations},
    {"distinct_constants", &Properties::distinct_constants},
    {"distinct_globals", &Properties::distinct_globals},
    {"loops", &Properties::loops},
    {"top_level_loops", &Properties::top_level_loops},
    {"loop_depth", &Properties::loop_depth},
    {"loop_blocks", &Properties::loop_blocks},
    {"single_block_loops", &Properties::single_block_loops},
    {"loop_exits", &Properties::loop_exits},
};

/// Each is a feature of the whole function, and with `loop_` before its name one of its loops' blocks.
constexpr std::pair<const char *, std::int64_t BlockCounts::*> counts[] = {
    {"instructions", &BlockCounts::instructions},
    {"loads", &BlockCounts::loads},
    {"stores", &BlockCounts::stores},
    {"calls", &BlockCounts::calls},
    {"indirect_calls", &BlockCounts::indirect_calls},
    {"intrinsics", &BlockCounts::intrinsics},
    {"phis", &BlockCounts::phis},
    {"geps", &BlockCounts::geps},
    {"variable_geps", &BlockCounts::variable_geps},
    {"byte_constants", &BlockCounts::byte_constants},
    {"word_constants", &BlockCounts::word_constants},
    {"wide_constants", &BlockCounts::wide_constants},
    {"globals", &BlockCounts::globals},
};

/// Counts one function; nothing of it changes, and no analysis is kept.
class Counting {
public:
  explicit Counting(Function &function) : function_(function), tree_(function), loops_(tree_) {}

  Properties run() {
    count_function();
    count_loops();
    for (BasicBlock &block : function_)
      count_block(block);
    found_.distinct_constants = static_cast<std::int64_t>(constants_.size());
    found_.distinct_globals = static_cast<std::int64_t>(globals_.size());
    return found_;
  }

private:
  void count_function() {
    const StringRef name = lasting_name(function_.getName());
    found_.function = static_cast<std::int64_t>(sha256_head({name.data(), name.size()}));
    found_.minsize = function_.hasMinSize();
    found_.optsize = function_.hasOptSize();
    found_.local = function_.hasLocalLinkage();
    found_.arguments = static_cast<std::int64_t>(function_.arg_size());
    found_.uses = static_cast<std::int64_t>(function_.getNumUses());
    found_.blocks = static_cast<std::int64_t>(function_.size());
  }

  void count_loops() {
    found_.top_level_loops = static_cast<std::int64_t>(loops_.getTopLevelLoops().size());
    for (Loop *loop : loops_.getLoopsInPreorder()) {
      ++found_.loops;
      found_.loop_depth = std::max<std::int64_t>(found_.loop_depth, loop->getLoopDepth());
      found_.single_block_loops += loop->getNumBlocks() == 1;
      SmallVector<BasicBlock *, 8> exits;
      loop->getExitingBlocks(exits);
      found_.loop_exits += static_cast<std::int64_t>(exits.size());
    }
  }

  void count_block(BasicBlock &block) {
    BlockCounts own;
    for (Instruction &instruction : block)
      if (!instruction.isDebugOrPseudoInst() && !is_note(instruction))
        count(instruction, own);
    found_.largest_block = std::max(found_.largest_block, own.instructions);
    add(own, found_.all);
    if (loops_.getLoopFor(&block)) {
      ++found_.loop_blocks;
      add(own, found_.in_loops);
    }
  }

  /// Whether the instruction leaves no code: an assumption, the end of a lifetime, …
  static bool is_note(const Instruction &instruction) {
    const auto *call = dyn_cast<IntrinsicInst>(&instruction);
    return call && call->isAssumeLikeIntrinsic();
  }

  static void add(const BlockCounts &from, BlockCounts &to) {
    for (const auto &[name, member] : counts)
      to.*member += from.*member;
  }

  void count(Instruction &instruction, BlockCounts &own) {
    ++own.instructions;
    own.loads += isa<LoadInst>(instruction);
    own.stores += isa<StoreInst>(instruction);
    own.phis += isa<PHINode>(instruction);
    if (const auto *gep = dyn_cast<GetElementPtrInst>(&instruction)) {
      ++own.geps;
      own.variable_geps += !gep->hasAllConstantIndices();
    }
    if (const auto *call = dyn_cast<CallBase>(&instruction))
      ++(isa<IntrinsicInst>(call) ? own.intrinsics : call->isIndirectCall() ? own.indirect_calls : own.calls);
    count_kind(instruction);
    if (instruction.isTerminator())
      count_terminator(instruction);
    for (const Use &operand : instruction.operands())
      count_operand(*operand, own);
  }

  void count_kind(const Instruction &instruction) {
    found_.allocas += isa<AllocaInst>(instruction);
    found_.selects += isa<SelectInst>(instruction);
    found_.compares += isa<CmpInst>(instruction);
    found_.casts += isa<CastInst>(instruction);
    found_.landing_pads += instruction.isEHPad();
    const Type *type = instruction.getType();
    found_.vector_operations += type->isVectorTy();
    if (!isa<BinaryOperator>(instruction))
      return;
    ++(type->isFPOrFPVectorTy() ? found_.float_operations : found_.integer_operations);
    const unsigned opcode = instruction.getOpcode();
    found_.multiplications += opcode == Instruction::Mul || instruction.isIntDivRem();
  }

  void count_terminator(const Instruction &instruction) {
    found_.returns += isa<ReturnInst>(instruction);
    if (const auto *choice = dyn_cast<SwitchInst>(&instruction)) {
      ++found_.switches;
      found_.switch_cases += choice->getNumCases();
    }
    const unsigned successors = instruction.getNumSuccessors();
    found_.branches += isa<BranchInst>(instruction) && successors == 2;
    for (unsigned index = 0; index < successors; ++index)
      found_.critical_edges += isCriticalEdge(&instruction, index);
  }

  void count_operand(const Value &operand, BlockCounts &own) {
    if (isa<GlobalValue>(operand)) {
      ++own.globals;
      globals_.insert(&operand);
    }
    const auto *constant = dyn_cast<ConstantInt>(&operand);
    if (!constant || constant->isZero())
      return;
    const APInt &value = constant->getValue();
    ++(value.isSignedIntN(8) ? own.byte_constants : value.isSignedIntN(32) ? own.word_constants : own.wide_constants);
    if (!value.isSignedIntN(8))
      constants_.insert(&operand);
  }

  Function &function_;
  DominatorTree tree_;
  LoopInfo loops_;
  Properties found_;
  SmallPtrSet<const Value *, 16> constants_;
  SmallPtrSet<const Value *, 16> globals_;
};

std::vector<Feature> made_of(const Properties &properties) {
  std::vector<Feature> features;
  const auto add = [&](std::string name, std::int64_t value) {
    features.push_back({TensorSpec::of<std::int64_t>(std::move(name)), {static_cast<std::uint64_t>(value)}});
  };
  for (const auto &[name, member] : members)
    add(name, properties.*member);
  for (const auto &[name, member] : counts)
    add(name, properties.all.*member);
  for (const auto &[name, member] : counts)
    add(std::string("loop_") + name, properties.in_loops.*member);
  return features;
}

} // namespace

std::vector<Feature> function_features(Function &function) { return made_of(Counting(function).run()); }

} // namespace policybridge::plugin
