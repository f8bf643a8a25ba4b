#include "unroll_pass.h"

#include "debug_binds.h"
#include "loop_features.h"
#include "unrolling.h"
#include "utf8.h"

#include "gcc-plugin.h"

#include "tree.h"
#include "rtl.h"
#include "cfgloop.h"
#include "context.h"
#include "diagnostic-core.h"
#include "predict.h"
#include "tree-pass.h"

namespace policybridge::plugin {
namespace {

pass_data data_of(const char *name) {
  return {RTL_PASS, name, OPTGROUP_LOOP, TV_PLUGIN_RUN, 0, 0, 0, 0, 0};
}

/// Whether GCC's pass loop2_unroll could unroll the loop, and the source sets no factor for it (#pragma GCC unroll).
bool is_candidate(loop_p loop) {
  return !loop->inner && loop->unroll == 0 && !optimize_loop_for_size_p(loop) && can_duplicate_loop_p(loop);
}

/// Set the number of copies of the body. As in `loop::unroll`, 0 leaves the decision to GCC, 1 unrolls nothing, and
/// 65534 is the largest number.
void set_unrolling(loop_p loop, ::function *function, std::size_t copies) {
  loop->unroll = static_cast<unsigned short>(copies);
  if (copies > 1)
    function->has_unroll = 1;
}

class UnrollPass final : public rtl_opt_pass {
public:
  explicit UnrollPass(UnitSession &session) : rtl_opt_pass(data_of("policybridge_unroll"), g), session_(session) {}

  bool gate(::function *) override { return optimize > 0; }

  unsigned execute(::function *function) override {
    const std::size_t size = instructions_of(function);
    session_.count_instructions(size);
    if (number_of_loops(function) <= 1)
      return 0;
    const DebugBinds binds(function); // restores the binds when the analysis is done
    std::size_t ordinal = 0;
    for (loop_p loop : loops_list(function, LI_ONLY_INNERMOST)) {
      if (is_candidate(loop))
        decide(loop, function, ordinal, size);
      ++ordinal;
    }
    iv_analysis_done();
    return 0;
  }

private:
  void decide(loop_p loop, ::function *function, std::size_t ordinal, std::size_t size) {
    const Unrolling unrolling = unrolling_of(loop);
    if (unrolling.has_choice()) {
      Loop described = describe(loop, function);
      described.ordinal = ordinal;
      described.mask = unrolling.mask;
      described.features[unrolling_default] = static_cast<std::int64_t>(unrolling.own);
      described.features[function_instructions] = static_cast<std::int64_t>(size);
      if (const std::size_t copies = session_.decide(described))
        set_unrolling(loop, function, copies);
      if (const Status failure = session_.take_error(); !failure.ok())
        error_at(UNKNOWN_LOCATION, "policybridge: no advice: %s", one_line(failure.message()).c_str());
    }
    // Leave no description behind: GCC's own pass computes it again.
    free_simple_loop_desc(loop);
  }

  UnitSession &session_;
};

class CountingPass final : public rtl_opt_pass {
public:
  explicit CountingPass(UnitSession &session) : rtl_opt_pass(data_of("policybridge_count"), g), session_(session) {}

  unsigned execute(::function *function) override {
    session_.count_final_instructions(name_of(function), instructions_of(function));
    return 0;
  }

private:
  UnitSession &session_;
};

} // namespace

rtl_opt_pass *make_unroll_pass(UnitSession &session) { return new UnrollPass(session); }

rtl_opt_pass *make_counting_pass(UnitSession &session) { return new CountingPass(session); }

} // namespace policybridge::plugin
