#include "question.h"

namespace policybridge::plugin {

std::vector<TensorSpec> features_of_question() {
  std::vector<TensorSpec> specs;
  const auto add = [&specs](const char *name, std::size_t count = 1) {
    specs.push_back(TensorSpec::of<std::int64_t>(name, {static_cast<std::int64_t>(count)}));
  };
  for (const char *name : {"operation", "kind", "element_bits", "loops", "loop", "extent", "parallel", "default"})
    add(name);
  for (const char *name : {"stride", "operand_bytes", "tile_bytes"})
    add(name, most_operands);
  for (const char *name : {"extents", "parallels", "tiles"})
    add(name, most_loops);
  add("strides", most_operands * most_loops);
  return specs;
}

} // namespace policybridge::plugin
