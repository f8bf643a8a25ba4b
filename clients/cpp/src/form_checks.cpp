// The rules and bounds of forms: what serdes/policybridge_forms/checks.py checks, in the same order.
#include "form_reader.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <string>

namespace policybridge::forms {

namespace {

constexpr std::uint64_t most_steps = std::uint64_t{1} << 22;
constexpr std::uint64_t most_size = std::uint64_t{1} << 31;

/// A product; beyond the steps of any form only that it is.
std::uint64_t product(std::initializer_list<std::uint64_t> sizes) noexcept {
  std::uint64_t made = 1;
  for (const std::uint64_t size : sizes) {
    if (!size)
      return 0;
    made = std::min(made * size, most_steps + 1);
  }
  return made;
}

/// The elements from the first to the last that an input of these strides reads.
std::uint64_t span_of(const std::size_t *dims, const std::size_t *strides, std::size_t axes) noexcept {
  std::uint64_t last = 0;
  for (std::size_t axis = 0; axis < axes; ++axis) {
    if (!dims[axis])
      return 0;
    last = std::min(last + (dims[axis] - 1) * std::uint64_t{strides[axis]}, std::uint64_t{1} << 40);
  }
  return last + 1;
}

enum class Rule { Any, Number, Float, Power, Tests, FloatTests, Bools, Where, None };

struct Taken {
  std::size_t inputs;
  std::size_t numbers;
  Rule rule;
};

/// How many inputs and numbers a function of map takes, and the rule of its types.
Taken taken_by(Function function) noexcept {
  switch (function) {
  case Function::Cast:
    return {1, 0, Rule::Any};
  case Function::Negative:
  case Function::Absolute:
  case Function::Sign:
    return {1, 0, Rule::Number};
  case Function::Not:
    return {1, 0, Rule::Tests};
  case Function::IsNan:
    return {1, 0, Rule::FloatTests};
  case Function::Elu:
  case Function::Celu:
    return {1, 1, Rule::Float};
  case Function::Selu:
    return {1, 2, Rule::Float};
  case Function::Add:
  case Function::Subtract:
  case Function::Times:
  case Function::Greatest:
  case Function::Least:
  case Function::AtLeast:
  case Function::AtMost:
    return {2, 0, Rule::Number};
  case Function::Divide:
  case Function::Slope:
    return {2, 0, Rule::Float};
  case Function::Power:
    return {2, 0, Rule::Power};
  case Function::Less:
  case Function::LessEqual:
  case Function::Greater:
  case Function::GreaterEqual:
  case Function::Equal:
    return {2, 0, Rule::Tests};
  case Function::And:
  case Function::Or:
  case Function::Xor:
    return {2, 0, Rule::Bools};
  case Function::Where:
    return {3, 0, Rule::Where};
  case Function::BatchNorm:
    return {5, 1, Rule::Float};
  default:
    return function >= Function::Floor && function <= Function::GeluTanh ? Taken{1, 0, Rule::Float}
                                                                         : Taken{0, 0, Rule::None};
  }
}

std::uint64_t weight_of(Function function) noexcept {
  switch (function) {
  case Function::Erf:
  case Function::Gelu:
    return 256;
  case Function::Sqrt:
  case Function::Exp:
  case Function::Log:
  case Function::Tanh:
  case Function::Sigmoid:
  case Function::Softplus:
  case Function::GeluTanh:
  case Function::Elu:
  case Function::Celu:
  case Function::Selu:
  case Function::Power:
  case Function::BatchNorm:
    return 16;
  default:
    return 1;
  }
}

bool fits(Rule rule, const Instruction &each) noexcept {
  const Kind out = each.output.kind;
  const std::vector<Operand> &inputs = each.inputs;
  const auto all = [&](std::size_t from, Kind kind) {
    return std::all_of(inputs.begin() + static_cast<std::ptrdiff_t>(from), inputs.end(),
                       [kind](const Operand &input) { return input.kind == kind; });
  };
  switch (rule) {
  case Rule::Any:
    return true;
  case Rule::Number:
    return out != Kind::Bool && all(0, out);
  case Rule::Float:
    return is_float(out) && all(0, out);
  case Rule::Power:
    return is_float(out) && inputs[0].kind == out;
  case Rule::Tests:
    return out == Kind::Bool && all(0, inputs[0].kind);
  case Rule::FloatTests:
    return out == Kind::Bool && is_float(inputs[0].kind);
  case Rule::Bools:
    return out == Kind::Bool && all(0, Kind::Bool);
  case Rule::Where:
    return inputs[0].kind == Kind::Bool && all(1, out);
  default:
    return false;
  }
}

class Checker {
public:
  explicit Checker(const Program &program) : program_(program), written_(program.work) {}

  Status check() {
    check_features();
    for (const Forest &forest : program_.forests)
      check_forest(forest);
    for (const Instruction &each : program_.instructions) {
      if (!status_.ok())
        return status_;
      add(each);
    }
    check_result();
    return status_;
  }

private:
  bool require(bool holds, const char *why) {
    if (!holds && status_.ok())
      status_ = invalid_argument(std::string("the form ") + why);
    return holds;
  }

  void check_features() {
    std::set<std::string> names;
    std::size_t end = 0;
    for (const FormFeature &each : program_.features) {
      require(names.insert(each.spec.name).second, "has one name of a feature twice");
      require(each.offset % element_size(each.spec.type) == 0, "has a feature at no multiple of its size");
      require(each.offset >= end, "has a feature that overlaps the one before");
      end = each.offset + static_cast<std::size_t>(each.spec.byte_size());
    }
    require(end <= program_.observation, "has features that do not lie in the observation");
    if (program_.scores == Scores::Advice) {
      require(!program_.choices && !program_.is_masked, "has choices, and takes the result as the advice");
      return;
    }
    require(program_.choices >= 1 && program_.choices < most_size, "has no choices, or too many");
    require(program_.advice.count() == 1 && is_integer(program_.advice_kind),
            "has an advice that is no integer, and its head chooses");
    const std::size_t size = size_of(program_.advice_kind);
    const bool is_signed = program_.advice.type == ElementType::Int8 || program_.advice.type == ElementType::Int16 ||
                           program_.advice.type == ElementType::Int32 || program_.advice.type == ElementType::Int64;
    const std::size_t bits = 8 * size - (is_signed ? 1 : 0);
    require(bits >= 31 || (program_.choices - 1) >> bits == 0, "has an advice without room for its choices");
    if (program_.is_masked && require(program_.mask < program_.features.size(), "has a mask that is no feature"))
      require(program_.features[program_.mask].spec.count() == program_.choices,
              "has a mask with another number of elements than choices");
  }

  void check_forest(const Forest &forest) {
    require(forest.targets > 0 && forest.targets < most_size && forest.columns < most_size,
            "has a forest without targets, or with too many columns");
    require(forest.sizes.size() > 0, "has a forest without trees");
    std::uint64_t nodes = 0;
    for (std::size_t tree = 0; tree < forest.sizes.size(); ++tree) {
      require(forest.sizes[tree] % 2 == 1, "has a tree with an even number of nodes");
      nodes += forest.sizes[tree];
    }
    if (!require(nodes == forest.kinds.size(), "has a forest with nodes outside its trees"))
      return;
    if (forest.kind == Kind::Float ? !are_nodes_right<float>(forest) : !are_nodes_right<double>(forest))
      check_nodes(forest);
    std::uint32_t last = 0;
    for (std::size_t weight = 0; weight < forest.owners.size(); ++weight)
      last = std::max(last, forest.owners[weight]);
    require(last < forest.targets || !forest.owners.size(), "has a weight of a target that there is not");
  }

  /// As `check_nodes`, but without a message, and without branches, which are seldom foreseen: compilers make the loops of
  /// vectors.
  template <class Real> static bool are_nodes_right(const Forest &forest) {
    const auto kinds = forest.kinds;
    const auto links = forest.links;
    const auto thresholds = forest.thresholds<Real>();
    const std::uint32_t columns = forest.columns;
    const bool is_single = forest.targets == 1;
    unsigned char strange = 0;
    for (std::size_t node = 0; node < kinds.size(); ++node) {
      const unsigned char kind = kinds[node];
      strange |= static_cast<unsigned char>((kind & ~3) | ((kind >> 1) & ~kind & 1)); // none but 0, 1 and 3
    }
    std::uint32_t wrong = 0;
    for (std::size_t node = 0; node < kinds.size(); ++node) {
      const std::uint32_t link = links[node];
      const Real threshold = thresholds[node];
      const std::uint32_t of_split = (link >= columns) | (threshold != threshold), of_leaf = is_single & (link != 1);
      wrong |= kinds[node] & 1 ? of_split : of_leaf;
    }
    std::uint64_t weights = 0;
    for (std::size_t node = 0; node < kinds.size(); ++node)
      weights += kinds[node] & 1 ? 0 : links[node];
    return !strange && !wrong && are_trees_right(forest) && weights == forest.owners.size();
  }

  /// Whether each split has two children behind it.
  static bool are_trees_right(const Forest &forest) {
    const auto kinds = forest.kinds;
    bool is_wrong = false;
    std::size_t node = 0;
    for (std::size_t tree = 0; tree < forest.sizes.size(); ++tree) {
      const std::uint64_t size = forest.sizes[tree];
      std::uint64_t reached = 1;
      for (std::uint64_t own = 0; own < size; ++own, ++node) {
        is_wrong |= reached <= own;
        reached += 2 * (kinds[node] & 1u);
      }
      is_wrong |= reached != size;
    }
    return !is_wrong;
  }

  void check_nodes(const Forest &forest) {
    std::size_t node = 0;
    std::uint64_t weights = 0;
    for (std::size_t tree = 0; tree < forest.sizes.size(); ++tree) {
      const std::uint32_t size = forest.sizes[tree];
      std::uint64_t reached = 1;
      for (std::uint32_t own = 0; own < size; ++own, ++node) {
        require(reached > own, "has a tree with a node before its parent");
        check_node(forest, node, reached, weights);
      }
      require(reached == size, "has a tree whose splits do not have two children each");
    }
    require(weights == forest.owners.size(), "has a forest with weights outside its leaves");
  }

  static bool has_nan(const Forest &forest, std::size_t node) {
    return forest.kind == Kind::Float ? std::isnan(forest.thresholds<float>()[node])
                                      : std::isnan(forest.thresholds<double>()[node]);
  }

  void check_node(const Forest &forest, std::size_t node, std::uint64_t &reached, std::uint64_t &weights) {
    switch (forest.kinds[node]) {
    case 0:
      weights += forest.links[node];
      require(forest.targets > 1 || forest.links[node] == 1, "has a forest of one target, and a leaf without one weight");
      return;
    case 1:
    case 3:
      reached += 2;
      require(forest.links[node] < forest.columns, "has a tree that asks for a column that there is not");
      require(!has_nan(forest, node), "has a threshold that is NaN");
      return;
    default:
      require(false, "has a node that is neither leaf nor split");
    }
  }

  /// The bytes of an operand of so many elements, in its space.
  bool within(const Operand &operand, std::uint64_t count, std::size_t &begin, std::size_t &end) {
    const std::size_t rooms[] = {program_.constant_bytes, program_.observation, program_.work};
    const std::size_t size = size_of(operand.kind);
    const std::uint64_t last = operand.offset + count * size;
    if (!require(operand.offset % size == 0, "has an operand at no multiple of its size") ||
        !require(last <= rooms[static_cast<std::size_t>(operand.space)], "has an operand beyond its space"))
      return false;
    begin = operand.offset;
    end = static_cast<std::size_t>(last);
    return true;
  }

  bool is_read(const Operand &operand, std::uint64_t count) {
    std::size_t begin = 0;
    std::size_t end = 0;
    if (!within(operand, count, begin, end))
      return false;
    if (operand.space != Space::Work)
      return true;
    return require(std::all_of(written_.begin() + static_cast<std::ptrdiff_t>(begin),
                               written_.begin() + static_cast<std::ptrdiff_t>(end), [](char byte) { return byte; }),
                   "has an instruction that reads what nothing has written");
  }

  void add(const Instruction &each) {
    for (const std::size_t size : each.sizes)
      require(size < most_size, "has a size of 2³¹ or more");
    for (const double number : each.numbers)
      require(std::isfinite(number), "has a number that is not finite");
    const bool chooses = each.opcode == Opcode::Map || each.opcode == Opcode::Reduce ||
                         each.opcode == Opcode::Argument || each.opcode == Opcode::Softmax;
    require(chooses || each.function == Function::Plain, "has an instruction with a function that it does not take");
    spans_.clear();
    further_ = written_count_ = 0;
    if (!status_.ok() || !check_shape(each))
      return;
    steps_ += further_ + written_count_;
    for (const std::uint64_t span : spans_)
      steps_ += span;
    if (steps_ > most_steps) {
      status_ = resource_exhausted("a decision by the form takes more than " + std::to_string(most_steps) + " steps");
      return;
    }
    std::size_t begin = 0;
    std::size_t end = 0;
    if (!require(each.output.space == Space::Work, "has an instruction that writes to what cannot change") ||
        !within(each.output, written_count_, begin, end))
      return;
    for (std::size_t place = 0; place < each.inputs.size(); ++place) {
      if (!is_read(each.inputs[place], spans_[place]))
        return;
      const Operand &input = each.inputs[place];
      const std::size_t last = input.offset + static_cast<std::size_t>(spans_[place]) * size_of(input.kind);
      require(input.space != Space::Work || input.offset >= end || last <= begin || input.offset == last,
              "has an instruction that reads what it writes");
    }
    const std::size_t element = size_of(each.output.kind);
    if (each.opcode != Opcode::Place)
      std::fill(written_.begin() + static_cast<std::ptrdiff_t>(begin),
                written_.begin() + static_cast<std::ptrdiff_t>(end), char{1});
    else
      for (std::size_t row = 0; row < each.sizes[0] && begin < end; ++row)
        std::fill_n(written_.begin() + static_cast<std::ptrdiff_t>(begin + row * each.sizes[2] * element),
                    each.sizes[1] * element, char{1});
  }

  bool has(const Instruction &each, std::size_t inputs, std::size_t sizes, std::size_t numbers = 0) {
    return require(each.inputs.size() == inputs && each.sizes.size() == sizes && each.number_count == numbers,
                   "has an instruction with another number of inputs, sizes or numbers than it takes");
  }

  bool is_same(const Instruction &each, std::size_t inputs) {
    return require(std::all_of(each.inputs.begin(), each.inputs.begin() + static_cast<std::ptrdiff_t>(inputs),
                               [&](const Operand &input) { return input.kind == each.output.kind; }),
                   "has an instruction with operands of types that do not fit");
  }

  bool is_function(bool holds) { return require(holds, "has an instruction with a function that it does not take"); }
  bool is_real(const Instruction &each) {
    return require(is_float(each.output.kind), "has an instruction that is of no float type");
  }

  /// Find the spans of the inputs, the elements of the output and further steps.
  bool check_shape(const Instruction &each) {
    const std::vector<std::size_t> &sizes = each.sizes;
    switch (each.opcode) {
    case Opcode::Map:
      return check_map(each);
    case Opcode::Pick:
      return has(each, 2, 2) && is_same(each, 1) && check_pick(each);
    case Opcode::Gather:
      if (!has(each, 2, 4) || !is_same(each, 1) ||
          !require(is_integer(each.inputs[1].kind), "has an instruction that gathers by no integers"))
        return false;
      spans_ = {product({sizes[0], sizes[1], sizes[2]}), sizes[3]};
      written_count_ = product({sizes[0], sizes[3], sizes[2]});
      // Its loops run over the indices and the outer rows, empty ones too.
      further_ = product({sizes[0] + 1, sizes[3]});
      return true;
    case Opcode::Place:
      if (!has(each, 1, 3) || !is_same(each, 1) ||
          !require(sizes[1] <= sizes[2], "has an instruction with rows that overlap"))
        return false;
      further_ = product({sizes[0], sizes[1]});
      spans_ = {further_};
      written_count_ = further_ ? (sizes[0] - 1) * std::uint64_t{sizes[2]} + sizes[1] : 0;
      return true;
    case Opcode::Multiply: {
      if (!has(each, 2, 7) || !is_same(each, 2) ||
          !require(each.output.kind != Kind::Bool, "has an instruction that multiplies matrices of bools"))
        return false;
      const std::size_t left[] = {sizes[0], sizes[1]};
      const std::size_t right[] = {sizes[1], sizes[2]};
      const bool full = sizes[0] && sizes[1] && sizes[2];
      spans_ = {full ? span_of(left, sizes.data() + 3, 2) : 0, full ? span_of(right, sizes.data() + 5, 2) : 0};
      further_ = product({sizes[0], sizes[1], sizes[2]});
      written_count_ = product({sizes[0], sizes[2]});
      return true;
    }
    case Opcode::Reduce:
      return check_groups(each, each.function >= Function::Sum && each.function <= Function::Minimum, false) &&
             is_same(each, 1) && is_real(each);
    case Opcode::Argument:
      return check_groups(each, each.function == Function::Maximum || each.function == Function::Minimum, false) &&
             require(each.output.kind == Kind::Int64, "has an instruction that gives no int64");
    case Opcode::Softmax:
      return check_groups(each, each.function == Function::Plain || each.function == Function::Logarithm, true) &&
             is_same(each, 1) && is_real(each);
    case Opcode::Normalise:
      return check_normalise(each);
    case Opcode::Forest:
      return check_walk(each);
    }
    return false;
  }

  bool check_map(const Instruction &each) {
    const Taken taken = taken_by(each.function);
    if (!is_function(taken.inputs > 0))
      return false;
    const std::size_t axes = each.sizes.size() / (1 + taken.inputs);
    if (!require(axes >= 1 && axes <= most_axes, "has an instruction without dimensions, or with too many") ||
        !has(each, taken.inputs, axes * (1 + taken.inputs), taken.numbers) ||
        !require(fits(taken.rule, each), "has an instruction with operands of types that do not fit"))
      return false;
    std::uint64_t count = 1;
    for (std::size_t axis = 0; axis < axes; ++axis)
      count = product({count, each.sizes[axis]});
    for (std::size_t place = 0; place < taken.inputs; ++place)
      spans_.push_back(span_of(each.sizes.data(), each.sizes.data() + axes * (place + 1), axes));
    written_count_ = count;
    further_ = weight_of(each.function) * count;
    return true;
  }

  bool check_pick(const Instruction &each) {
    const Operand &table = each.inputs[1];
    std::size_t begin = 0;
    std::size_t end = 0;
    if (!require(table.space == Space::Constants && table.kind == Kind::UInt32,
                 "has an instruction with a table that is no constant") ||
        !within(table, each.sizes[0], begin, end))
      return false;
    const auto *bytes = reinterpret_cast<const char *>(program_.constants.data());
    for (; begin < end; begin += sizeof(std::uint32_t)) {
      std::uint32_t place = 0;
      std::memcpy(&place, bytes + begin, sizeof place);
      require(place < each.sizes[1], "has an instruction that picks beyond its input");
    }
    spans_ = {each.sizes[1], each.sizes[0]};
    written_count_ = each.sizes[0];
    return true;
  }

  bool check_groups(const Instruction &each, bool known, bool each_element) {
    if (!has(each, 1, 2) || !is_function(known) || !require(each.sizes[1] > 0, "has an instruction with empty groups"))
      return false;
    const std::uint64_t count = product({each.sizes[0], each.sizes[1]});
    spans_ = {count};
    written_count_ = each_element ? count : each.sizes[0];
    further_ = each_element ? 32 * count : 0;
    return true;
  }

  bool check_normalise(const Instruction &each) {
    const std::size_t inputs = each.inputs.size();
    if (!require(inputs == 2 || inputs == 3, "has an instruction without a scale") || !has(each, inputs, 1 + inputs, 1) ||
        !is_same(each, inputs) || !is_real(each) ||
        !require(each.sizes[1] > 0, "has an instruction with empty groups"))
      return false;
    const std::uint64_t count = product({each.sizes[0], each.sizes[1]});
    spans_ = {count};
    for (std::size_t place = 2; place < each.sizes.size(); ++place) {
      require(each.sizes[place] <= 1, "has an instruction with a step of neither 0 nor 1");
      spans_.push_back(each.sizes[place] ? each.sizes[1] : 1);
    }
    written_count_ = count;
    further_ = 3 * count;
    return true;
  }

  bool check_walk(const Instruction &each) {
    if (!has(each, 1, 1) ||
        !require(each.sizes[0] < program_.forests.size(), "has an instruction with a forest that there is not"))
      return false;
    const Forest &forest = program_.forests[each.sizes[0]];
    if (!is_same(each, 1) ||
        !require(forest.kind == each.output.kind, "has an instruction with operands of types that do not fit"))
      return false;
    spans_ = {forest.columns};
    written_count_ = forest.targets;
    further_ = forest.kinds.size() + forest.owners.size();
    return true;
  }

  void check_result() {
    const Operand &result = program_.result;
    if (program_.scores == Scores::Advice)
      require(result.kind == program_.advice_kind, "has a result of another type than the advice");
    else if (program_.scores == Scores::Choice)
      require(!is_float(result.kind), "has a result that is no choice");
    else
      require(is_float(result.kind), "has a result that is no scores");
    if (status_.ok() && steps_ + program_.result_count() > most_steps)
      status_ = resource_exhausted("a decision by the form takes more than " + std::to_string(most_steps) + " steps");
    if (status_.ok())
      is_read(result, program_.result_count());
  }

  const Program &program_;
  Status status_;
  std::vector<char> written_;
  std::uint64_t steps_ = 0;
  std::vector<std::uint64_t> spans_;
  std::uint64_t written_count_ = 0;
  std::uint64_t further_ = 0;
};

} // namespace

Status check_program(const Program &program) { return Checker(program).check(); }

} // namespace policybridge::forms
