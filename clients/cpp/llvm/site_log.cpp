// The format: lines that end in \n, with tabs between the columns. Names and locations are percent-encoded: bytes up to a
// space, 0x7f and '%' are %XX.
//
// The first line: `policybridge-sites 1`, the module's digest, its level (Oz, Os or O2), its path, how many of the
// store's decisions applied, and how many the store has for the module; 0 and 0 without a store.
//
// Each other line is one call that LLVM asked about, in order:
//   key                  in 16 hexadecimal digits, as in a store
//   default, taken       LLVM's own decision, and the one that was given: 0 or 1
//   inlined              whether LLVM inlined the call
//   caller, origin, callee, number, occurrence   what `key` is the hash of, see call_sites.h
//   callee_local         whether the callee can be called from this module alone: 0 or 1
//   callee_uses          how often the callee is named in the module
//   cost, threshold      of LLVM's heuristic; empty where LLVM always or never inlines the call, whatever the cost
//   caller_instructions, callee_instructions, callee_blocks   as they are now
//   constant_arguments, arguments   of the call
//   loop_depth           of the call in its caller: 0 outside of loops
//   location             where the call is in the source, as LLVM's inline replay has it: function:line:column.discriminator,
//                        and behind " @ " where that function was inlined; empty without debug information

#include "site_log.h"

#include "../launcher/files.h"
#include "module_names.h"
#include "percent.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ReplayInlineAdvisor.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>

using namespace llvm;

namespace policybridge::plugin {
namespace {

/// Where `inlined` is in a line, behind the key and two decisions.
constexpr std::size_t inlined_column = 16 + 5;

std::string location_of(const CallBase &call) {
  const CallSiteFormat format{CallSiteFormat::Format::LineColumnDiscriminator};
  return call.getDebugLoc() ? percent_encoded(formatCallSiteLocation(call.getDebugLoc(), format)) : "";
}

} // namespace

SiteLog::Shape &SiteLog::shape_of(const Function &function) {
  const auto [at, is_new] = functions_.try_emplace(&function);
  if (is_new) {
    at->second.instructions = function.getInstructionCount();
    at->second.blocks = function.size();
  }
  return at->second;
}

/// Computed here and not taken from LLVM's analyses, because an analysis that exists earlier than otherwise can change
/// what LLVM makes.
unsigned SiteLog::loop_depth_of(const CallBase &call) {
  auto &caller = const_cast<Function &>(*call.getCaller());
  Shape &shape = shape_of(caller);
  if (!shape.has_loops) {
    const DominatorTree tree(caller);
    const LoopInfo loops(tree);
    for (const BasicBlock &block : caller)
      if (const unsigned depth = loops.getLoopDepth(&block))
        shape.loop_depths[&block] = depth;
    shape.has_loops = true;
  }
  const auto at = shape.loop_depths.find(call.getParent());
  return at == shape.loop_depths.end() ? 0 : at->second;
}

std::size_t SiteLog::add(const CallBase &call, const Entry &entry) {
  const Function &callee = *call.getCalledFunction();
  const Site &site = entry.site;
  const auto constants =
      std::count_if(call.arg_begin(), call.arg_end(), [](const Use &value) { return isa<Constant>(value); });
  starts_.push_back(lines_.size());
  raw_string_ostream line(lines_);
  line << utohexstr(site.key, true, 16) << '\t' << entry.own << '\t' << entry.taken << "\t0\t" << encoded(site.caller)
       << '\t' << encoded(site.origin) << '\t' << encoded(site.callee) << '\t' << site.number << '\t'
       << site.occurrence << '\t' << callee.hasLocalLinkage() << '\t' << callee.getNumUses() << '\t';
  if (entry.cost && entry.cost->isVariable())
    line << entry.cost->getCost() << '\t' << entry.cost->getThreshold() << '\t';
  else
    line << "\t\t";
  line << shape_of(*call.getCaller()).instructions << '\t' << shape_of(callee).instructions << '\t'
       << shape_of(callee).blocks << '\t' << constants << '\t' << call.arg_size() << '\t' << loop_depth_of(call)
       << '\t' << location_of(call) << '\n';
  return starts_.size() - 1;
}

void SiteLog::set_inlined(std::size_t entry, const Function &caller) {
  lines_[starts_[entry] + inlined_column] = '1';
  functions_.erase(&caller);
}

Status SiteLog::write(const std::string &path, const std::string &first_line) const {
  return write_file(path, first_line + '\n' + lines_);
}

} // namespace policybridge::plugin
