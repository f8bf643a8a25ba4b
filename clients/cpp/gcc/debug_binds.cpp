#include "debug_binds.h"

#include <utility>
#include <vector>

#include "gcc-plugin.h"

#include "tree.h"
#include "df.h"
#include "rtl.h"

namespace policybridge::plugin {
namespace {

void set_location(rtx_insn *instruction, rtx location) {
  INSN_VAR_LOCATION_LOC(instruction) = location;
  df_insn_rescan(instruction);
}

} // namespace

struct DebugBinds::Kept {
  std::vector<std::pair<rtx_insn *, rtx>> locations;
};

DebugBinds::DebugBinds(::function *function) : kept_(new Kept) {
  basic_block block;
  rtx_insn *instruction;
  FOR_EACH_BB_FN(block, function)
    FOR_BB_INSNS(block, instruction)
      if (DEBUG_BIND_INSN_P(instruction) && !VAR_LOC_UNKNOWN_P(INSN_VAR_LOCATION_LOC(instruction))) {
        kept_->locations.emplace_back(instruction, INSN_VAR_LOCATION_LOC(instruction));
        set_location(instruction, gen_rtx_UNKNOWN_VAR_LOC());
      }
}

DebugBinds::~DebugBinds() {
  for (const auto &[instruction, location] : kept_->locations)
    set_location(instruction, location);
}

} // namespace policybridge::plugin
