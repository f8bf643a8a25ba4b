#include "loop_features.h"

#include <algorithm>
#include <limits>

#include "gcc-plugin.h"

#include "tree.h"
#include "rtl.h"
#include "rtlanal.h"
#include "cfgloop.h"
#include "options.h"
#include "sreal.h"
#include "target.h"

namespace policybridge::plugin {
namespace {

/// An unknown value.
constexpr std::int64_t unknown = -1;

std::int64_t limited(const widest_int &number) {
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  return wi::leu_p(number, most) ? number.to_shwi() : most;
}

/// Count the instructions of one block by kind.
void count_instructions(basic_block block, Loop &loop) {
  rtx_insn *instruction;
  FOR_BB_INSNS(block, instruction) {
    if (!NONDEBUG_INSN_P(instruction))
      continue;
    loop.features[calls] += CALL_P(instruction);
    const rtx set = single_set(instruction);
    if (!set)
      continue;
    const machine_mode mode = GET_MODE(SET_DEST(set));
    loop.features[loads] += contains_mem_rtx_p(SET_SRC(set));
    loop.features[stores] += MEM_P(SET_DEST(set)) != 0;
    loop.features[float_operations] += FLOAT_MODE_P(mode) && ARITHMETIC_P(SET_SRC(set));
    loop.features[vector_operations] += VECTOR_MODE_P(mode) != 0;
  }
}

void count_iterations(loop_p loop, Loop &described) {
  const niter_desc &known = *get_simple_loop_desc(loop);
  const bool is_counted = known.simple_p && !known.assumptions;
  constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max();
  widest_int number;
  described.features[counted] = is_counted;
  described.features[constant_iterations] =
      is_counted && known.const_iter ? static_cast<std::int64_t>(std::min<std::uint64_t>(known.niter, most)) : unknown;
  described.features[estimated_iterations] = get_estimated_loop_iterations(loop, &number) ? limited(number) : unknown;
  described.features[most_iterations] = get_likely_max_loop_iterations(loop, &number) ? limited(number) : unknown;
}

std::int64_t runs_of(loop_p loop, const ::function *function) {
  const profile_count called = ENTRY_BLOCK_PTR_FOR_FN(function)->count;
  if (!called.initialized_p() || !called.nonzero_p() || !loop->header->count.initialized_p())
    return unknown;
  return loop->header->count.to_sreal_scale(called).to_int();
}

} // namespace

std::string name_of(const ::function *function) {
  const_tree declaration = function->decl;
  return targetm.strip_name_encoding(IDENTIFIER_POINTER(DECL_ASSEMBLER_NAME(const_cast<tree>(declaration))));
}

std::size_t instructions_of(const ::function *function) {
  std::size_t count = 0;
  basic_block block;
  rtx_insn *instruction;
  FOR_EACH_BB_FN(block, const_cast<::function *>(function))
    FOR_BB_INSNS(block, instruction)
      count += NONDEBUG_INSN_P(instruction) != 0;
  return count;
}

Loop describe(loop_p loop, const ::function *function) {
  Loop described;
  auto &features = described.features;
  described.function = name_of(function);
  features[instructions] = num_loop_insns(loop);
  features[average_instructions] = average_num_loop_insns(loop);
  features[blocks] = loop->num_nodes;
  features[branches] = num_loop_branches(loop);
  features[exits] = get_loop_exit_edges(loop).length();
  features[depth] = loop_depth(loop);
  basic_block *body = get_loop_body(loop);
  for (unsigned index = 0; index < loop->num_nodes; ++index)
    count_instructions(body[index], described);
  free(body);
  count_iterations(loop, described);
  features[runs_per_call] = runs_of(loop, function);
  features[optimization_level] = optimize;
  features[loop_number] = loop->num;
  features[line] = LOCATION_LINE(get_loop_location(loop).get_location_t());
  return described;
}

} // namespace policybridge::plugin
