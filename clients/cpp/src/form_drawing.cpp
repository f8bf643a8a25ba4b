// The draw of a session that explores, in the steps of serdes/policybridge_forms/drawing.py, so that the server can repeat
// it. Compiled without fused operations.
#include "form_arithmetic.h"
#include "form_program.h"

namespace policybridge::forms {

namespace {

/// Steps of a difference of two scores in a unit.
constexpr double steps_of_one = 256.0;

/// A choice that is so many steps below the best is never drawn by its score.
constexpr double steps_to_none = 16384.0;

/// The result `number` of SplitMix64, from its upper 53 bits: at least 0 and below 1.
double uniform_of(std::uint64_t seed, std::uint64_t number) noexcept {
  std::uint64_t z = seed + number * UINT64_C(0x9E3779B97F4A7C15);
  z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94D049BB133111EB);
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

double logit(const Program &program, const Memory &memory, std::size_t choice) noexcept {
  const double given = score(program, memory, choice);
  return program.scores == Scores::Probabilities ? log(given) : given;
}

/// The weight of a legal choice beside the best one, whose weight is 1.
double weight_of(double given, double top, double temperature) noexcept {
  if (given == top)
    return 1.0;
  const double steps = (top - given) / temperature * steps_of_one;
  return steps < steps_to_none ? exp(-round_even(steps) / steps_of_one) : 0.0;
}

} // namespace

std::size_t draw_choice(const Program &program, const Memory &memory, std::size_t best, Draw &draw) noexcept {
  // gRPC carries them as floats.
  const double temperature = static_cast<float>(draw.exploration->temperature);
  const double epsilon = static_cast<float>(draw.exploration->epsilon);
  const bool by_score = temperature > 0 && program.scores != Scores::Choice;
  const double top = by_score ? logit(program, memory, best) : 0.0;
  double total = 0.0, legal = 0.0;
  for (std::size_t i = 0; i < program.choices; ++i) {
    const bool allowed = is_legal(program, memory, i);
    double weight = i == best ? 1.0 : 0.0;
    if (by_score)
      weight = allowed ? weight_of(logit(program, memory, i), top, temperature) : 0.0;
    draw.chances[i] = weight;
    total += weight;
    legal += allowed;
  }
  double end = 0.0;
  for (std::size_t i = 0; i < program.choices; ++i) {
    const double even = is_legal(program, memory, i) ? epsilon : 0.0;
    draw.chances[i] = (1.0 - epsilon) * draw.chances[i] / total + even / legal;
    end += draw.chances[i];
  }
  const double drawn = uniform_of(draw.exploration->seed, draw.number) * end;
  std::size_t chosen = best;
  double sum = 0.0;
  for (std::size_t i = 0; i < program.choices; ++i) {
    sum += draw.chances[i];
    if (draw.chances[i] > 0)
      chosen = i;
    if (sum > drawn)
      break;
  }
  const double chance = draw.chances[chosen];
  draw.log_probability = chance >= 1.0 ? 0.0F : static_cast<float>(log(chance));
  return chosen;
}

} // namespace policybridge::forms
