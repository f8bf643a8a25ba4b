#include "growth.h"

#include <algorithm>

namespace policybridge {

namespace {

// LLVM's cost of an instruction (llvm/include/llvm/Analysis/InlineCost.h), and the average number of instructions in a
// function before inlining.
constexpr double instruction_cost = 5;
constexpr double instructions_per_function = 50;

double number_in(std::string_view payload, const FeatureSlice &slice) {
  return static_cast<double>(integer_in(payload.substr(slice.offset, slice.size)));
}

} // namespace

void Growth::begin(const Signature &signature) {
  cost_ = find_feature(signature, "cost_estimate");
  functions_ = find_feature(signature, "node_count");
  added_ = allowed_ = 0;
}

void Growth::count(std::string_view payload) {
  if (!cost_ || !functions_)
    return;
  if (added_ == 0)
    allowed_ = limit_ * instruction_cost * instructions_per_function * number_in(payload, *functions_);
  added_ += std::max(number_in(payload, *cost_), instruction_cost);
}

} // namespace policybridge
