#include "unrolling.h"

#include <algorithm>

#include "gcc-plugin.h"

#include "tree.h"
#include "rtl.h"
#include "cfgloop.h"
#include "target.h"
#include "options.h"

namespace policybridge::plugin {
namespace {

/// The most instructions of an unrolled body that a policy may ask for: eight times what GCC itself allows
/// (--param max-unrolled-insns).
constexpr unsigned most_instructions = 1600;

unsigned power_of_two_up_to(unsigned number) {
  unsigned power = 1;
  while (2 * power <= number)
    power *= 2;
  return power;
}

/// One loop, with what GCC knows about it.
class Candidate {
public:
  explicit Candidate(loop_p loop)
      : loop_(loop), iterations_(*get_simple_loop_desc(loop)), size_(num_loop_insns(loop)),
        average_size_(average_num_loop_insns(loop)) {}

  /// Copies that GCC makes where it is told to make `wanted`, which is at least 2.
  unsigned follow(unsigned wanted) const {
    if (is_constant())
      return by_size() > 1 && iterations_.niter > wanted ? wanted : 1;
    return is_counted() || num_loop_branches(loop_) <= 1 ? by_expectation(adjusted(wanted)) : 1;
  }

  /// Copies that GCC makes by itself.
  unsigned own() const {
    if (is_constant())
      return flag_unroll_loops ? constant_own() : 1;
    if (is_counted())
      return flag_unroll_loops ? by_expectation(by_size()) : 1;
    return flag_unroll_all_loops && num_loop_branches(loop_) <= 1 ? by_expectation(by_size()) : 1;
  }

  unsigned size() const { return size_; }

private:
  /// Whether the iterations are known when the loop is entered.
  bool is_counted() const { return iterations_.simple_p && !iterations_.assumptions; }
  bool is_constant() const { return is_counted() && iterations_.const_iter; }

  unsigned adjusted(unsigned copies) const {
    return targetm.loop_unroll_adjust ? targetm.loop_unroll_adjust(copies, loop_) : copies;
  }

  /// Copies that GCC's limits on size and number allow.
  unsigned by_size() const {
    const unsigned copies = std::min({static_cast<unsigned>(param_max_unrolled_insns) / size_,
                                      static_cast<unsigned>(param_max_average_unrolled_insns) / average_size_,
                                      static_cast<unsigned>(param_max_unroll_times)});
    return adjusted(copies);
  }

  /// Whether the loop is expected to run less often than pays for that many copies.
  bool is_short_for(unsigned copies) const {
    widest_int expected;
    return (get_estimated_loop_iterations(loop_, &expected) || get_likely_max_loop_iterations(loop_, &expected)) &&
           wi::ltu_p(expected, 2 * copies);
  }

  unsigned by_expectation(unsigned copies) const {
    return copies > 1 && !is_short_for(copies) ? power_of_two_up_to(copies) : 1;
  }

  /// Of a loop whose iterations are a constant, GCC takes the number of copies near its limit that leaves the smallest
  /// code: the unrolled body and the iterations that are peeled off before it.
  unsigned constant_own() const {
    const unsigned limit = by_size();
    if (limit <= 1 || iterations_.niter < 2 * limit || is_short_for(limit))
      return 1;
    const std::uint64_t most = std::min<std::uint64_t>(2 * std::uint64_t{limit} + 3, iterations_.niter - 1);
    std::uint64_t best = 0, best_code = 2 * std::uint64_t{limit} + 10;
    for (std::uint64_t copies = most; copies >= limit; --copies)
      if (const std::uint64_t code = constant_code(copies); code < best_code) {
        best_code = code;
        best = copies;
      }
    return best ? static_cast<unsigned>(best) : 1;
  }

  /// In bodies.
  std::uint64_t constant_code(std::uint64_t copies) const {
    const std::uint64_t rest = iterations_.niter % copies;
    if (!exits_at_end())
      return rest + copies;
    const bool fits = rest == copies - 1 && !iterations_.noloop_assumptions;
    return fits ? copies : rest + 1 + copies;
  }

  /// Whether the loop's test is the last thing in its body.
  bool exits_at_end() const {
    if (iterations_.in_edge->dest != loop_->latch)
      return false;
    rtx_insn *instruction;
    FOR_BB_INSNS(loop_->latch, instruction)
      if (INSN_P(instruction) && active_insn_p(instruction))
        return false;
    return true;
  }

  loop_p loop_;
  const niter_desc &iterations_;
  unsigned size_;
  unsigned average_size_;
};

} // namespace

bool Unrolling::has_choice() const {
  return own > 1 || std::any_of(mask.begin() + 2, mask.end(), [](std::int8_t possible) { return possible; });
}

Unrolling unrolling_of(loop_p loop) {
  const Candidate candidate(loop);
  Unrolling unrolling;
  unrolling.own = candidate.own();
  unrolling.mask[0] = unrolling.mask[1] = 1;
  for (unsigned copies = 2; copies <= most_copies && copies * candidate.size() <= most_instructions; ++copies)
    unrolling.mask[copies] = candidate.follow(copies) == copies;
  return unrolling;
}

} // namespace policybridge::plugin
