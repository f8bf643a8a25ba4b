// Trees, walked without branches. Many nodes ask the same, so each distinct test is answered once for an observation:
// the tests of a column lie in the order of their thresholds, and as many are true as it has thresholds below x.
#include "form_program.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace policybridge::forms {

namespace {

constexpr std::size_t together = 8;

/// Bytes of one copy of answers: a constant size needs no call.
constexpr std::size_t stride = 16;

template <class Index> struct Node {
  Index test;
  Index skip;
};

/// The tests of one column that treat NaN alike.
struct Group {
  std::uint32_t column;
  bool nan;
  std::uint32_t begin;
  std::uint32_t count;
};

/// How many of the sorted numbers are below x; none for NaN.
template <class Real> std::size_t below(const Real *sorted, std::size_t count, Real x) noexcept {
  std::size_t begin = 0;
  while (count > 1) {
    const std::size_t half = count / 2;
    begin += half * static_cast<std::size_t>(x > sorted[begin + half - 1]);
    count -= half;
  }
  return begin + static_cast<std::size_t>(x > sorted[begin]);
}

template <class Real, class Index> class Trees final : public Walk {
public:
  Trees(const Forest &forest, std::vector<Group> groups, std::vector<Real> thresholds, std::vector<Node<Index>> nodes)
      : groups_(std::move(groups)), thresholds_(std::move(thresholds)), nodes_(std::move(nodes)),
        targets_(forest.targets), aggregate_(forest.aggregate) {
    // The answers to the tests, later which targets have a weight.
    tests = std::max<std::size_t>(thresholds_.size() + 1 + stride, targets_);
    trees = forest.sizes.size();
    for (const Group &group : groups_)
      most_ = std::max<std::size_t>(most_, group.count);
    answers_.assign(most_, 1);
    answers_.resize(2 * most_ + stride, 0);
    if (is_summed())
      lay_out_leaves(forest);
    else
      lay_out_weights(forest);
    order(forest);
  }

  void run(const Instruction &instruction, Memory &memory) const noexcept override {
    const Operand &operand = instruction.inputs[0];
    const unsigned char *from = memory.spaces[static_cast<std::size_t>(operand.space)] + operand.offset;
    const auto *x = reinterpret_cast<const Real *>(from);
    answer(x, memory.tests);
    reach(memory.tests, memory.leaves);
    join(memory.leaves, memory.tests, reinterpret_cast<Real *>(memory.work + instruction.output.offset));
  }

private:
  /// Whether each leaf has one weight, and these are added up.
  bool is_summed() const noexcept { return targets_ == 1 && aggregate_ <= Aggregate::Average; }

  void lay_out_leaves(const Forest &forest) {
    leaves_.resize(forest.kinds.size());
    std::size_t weight = 0;
    // A split gets that of the next leaf, which nobody reads: a branch here is seldom foreseen. The last node is a leaf.
    for (std::size_t node = 0; node < leaves_.size(); ++node) {
      leaves_[node] = static_cast<Real>(forest.weights[weight]);
      weight += !(forest.kinds[node] & 1);
    }
  }

  void lay_out_weights(const Forest &forest) {
    owners_ = forest.owners;
    weights_.assign(forest.weights.begin(), forest.weights.end());
    begins_.reserve(forest.kinds.size() + 1);
    std::uint32_t begin = 0;
    for (std::size_t node = 0; node < forest.kinds.size(); ++node) {
      begins_.push_back(begin);
      begin += forest.kinds[node] & 1 ? 0 : forest.links[node];
    }
    begins_.push_back(begin);
  }

  /// Levels of a tree below its root. Each split has two nodes on the next level.
  static std::uint32_t depth_of(const unsigned char *kinds) noexcept {
    std::uint32_t depth = 0;
    for (std::size_t count = 1;; ++depth) {
      std::size_t splits = 0;
      for (std::size_t node = 0; node < count; ++node)
        splits += kinds[node] & 1;
      if (!splits)
        return depth;
      kinds += count;
      count = 2 * splits;
    }
  }

  /// Trees that are about as deep are walked together: their steps do not wait for each other.
  void order(const Forest &forest) {
    std::vector<std::uint32_t> depths;
    std::vector<std::uint32_t> roots;
    std::uint32_t root = 0;
    for (const std::uint32_t size : forest.sizes) {
      depths.push_back(depth_of(forest.kinds.data() + root));
      roots.push_back(root);
      root += size;
    }
    for (std::uint32_t tree = 0; tree < forest.sizes.size(); ++tree)
      order_.push_back(tree);
    std::sort(order_.begin(), order_.end(), [&](std::uint32_t one, std::uint32_t other) {
      return std::pair(depths[one], one) < std::pair(depths[other], other);
    });
    for (std::size_t place = 0; place < order_.size(); ++place) {
      roots_.push_back(roots[order_[place]]);
      if (place % together == together - 1 || place + 1 == order_.size())
        depths_.push_back(depths[order_[place]]);
    }
  }

  void answer(const Real *x, unsigned char *to) const noexcept {
    *to++ = 0;
    for (const Group &group : groups_) {
      const Real value = x[group.column];
      std::size_t ones = below(thresholds_.data() + group.begin, group.count, value);
      if (group.nan && value != value)
        ones = group.count;
      const unsigned char *from = answers_.data() + most_ - ones;
      // What is too much is the next group's, or after the last one's.
      for (std::size_t copied = 0; copied < group.count; copied += stride)
        std::memcpy(to + copied, from + copied, stride);
      to += group.count;
    }
  }

  void reach(const unsigned char *answers, std::uint32_t *leaves) const noexcept {
    const Node<Index> *nodes = nodes_.data();
    const auto step = [nodes, answers](std::uint32_t at) {
      return at + std::uint32_t{nodes[at].skip} + answers[nodes[at].test];
    };
    const std::size_t whole = trees - trees % together;
    std::size_t tree = 0;
    for (; tree < whole; tree += together) {
      const std::uint32_t *roots = roots_.data() + tree;
      const std::uint32_t *order = order_.data() + tree;
      // Apart, so that each has a register.
      std::uint32_t a = roots[0], b = roots[1], c = roots[2], d = roots[3];
      std::uint32_t e = roots[4], f = roots[5], g = roots[6], h = roots[7];
      for (std::uint32_t depth = depths_[tree / together]; depth > 0; --depth) {
        a = step(a), b = step(b), c = step(c), d = step(d);
        e = step(e), f = step(f), g = step(g), h = step(h);
      }
      leaves[order[0]] = a, leaves[order[1]] = b, leaves[order[2]] = c, leaves[order[3]] = d;
      leaves[order[4]] = e, leaves[order[5]] = f, leaves[order[6]] = g, leaves[order[7]] = h;
    }
    for (; tree < trees; ++tree) {
      std::uint32_t at = roots_[tree];
      for (std::uint32_t depth = depths_.back(); depth > 0; --depth)
        at = step(at);
      leaves[order_[tree]] = at;
    }
  }

  void join(const std::uint32_t *leaves, unsigned char *seen, Real *out) const noexcept {
    if (is_summed()) {
      Real all = 0;
      for (std::size_t tree = 0; tree < trees; ++tree)
        all += leaves_[leaves[tree]];
      out[0] = aggregate_ == Aggregate::Average ? all / static_cast<Real>(trees) : all;
      return;
    }
    std::fill(out, out + targets_, Real(0));
    std::memset(seen, 0, targets_);
    for (std::size_t tree = 0; tree < trees; ++tree)
      for (std::uint32_t w = begins_[leaves[tree]]; w < begins_[leaves[tree] + 1]; ++w)
        add(weights_[w], out[owners_[w]], seen[owners_[w]]);
    if (aggregate_ == Aggregate::Average)
      for (std::uint32_t target = 0; target < targets_; ++target)
        out[target] /= static_cast<Real>(trees);
  }

  void add(Real weight, Real &to, unsigned char &is_seen) const noexcept {
    if (aggregate_ <= Aggregate::Average)
      to += weight;
    else if (!is_seen || (aggregate_ == Aggregate::Min ? weight < to : weight > to))
      to = weight;
    is_seen = 1;
  }

  std::vector<Group> groups_;
  std::vector<Real> thresholds_;
  std::size_t most_ = 0; // tests of a group
  std::vector<unsigned char> answers_;
  std::vector<Node<Index>> nodes_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint32_t> roots_;
  std::vector<std::uint32_t> depths_;
  std::uint32_t targets_;
  Aggregate aggregate_;
  // Of a sum of one target the weights by node; else those of all leaves, their targets, and where those of a node begin.
  std::vector<Real> leaves_;
  std::vector<Real> weights_;
  std::vector<std::uint32_t> owners_;
  std::vector<std::uint32_t> begins_;
};

/// The distinct tests of a forest, numbered from 1 by column, whether NaN passes, and threshold.
struct Tests {
  std::vector<Group> groups;
  std::vector<double> thresholds;
  std::vector<std::uint32_t> of_node; // 0 of a leaf
};

/// The bits of a number that is not NaN, in the order of such numbers.
std::uint64_t ordered_bits(double number) noexcept {
  constexpr std::uint64_t sign = std::uint64_t{1} << 63;
  number += 0.0; // −0 and 0 are one
  std::uint64_t bits = 0;
  std::memcpy(&bits, &number, sizeof bits);
  return bits & sign ? ~bits : bits | sign;
}

/// A split: the bits of its threshold, and its node.
using Split = std::pair<std::uint64_t, std::uint32_t>;

/// Sort by these bits, digit by digit, which takes the time of comparisons of few splits, and a fifth of many. Splits of
/// the same bits keep their order. A digit that all splits share takes no step: floats have 29 bits of a double less.
void sort_by_bits(std::vector<Split> &splits) {
  constexpr unsigned digit = 11;
  constexpr std::size_t mask = (std::size_t{1} << digit) - 1;
  std::uint64_t any = 0, all = ~std::uint64_t{0};
  for (const Split &split : splits)
    any |= split.first, all &= split.first;
  std::vector<Split> sorted(splits.size());
  std::vector<std::uint32_t> places(mask + 1);
  for (unsigned shift = 0; shift < 64; shift += digit) {
    if (!((any ^ all) >> shift & mask))
      continue;
    std::fill(places.begin(), places.end(), 0);
    for (const Split &split : splits)
      ++places[split.first >> shift & mask];
    std::uint32_t begin = 0;
    for (std::uint32_t &place : places)
      begin += std::exchange(place, begin);
    for (const Split &split : splits)
      sorted[places[split.first >> shift & mask]++] = split;
    splits.swap(sorted);
  }
}

/// Sorted, column by column: a form can make many tests, but no collisions.
Tests tests_of(const Forest &forest) {
  const auto group_of = [&](std::size_t node) { return 2 * std::size_t{forest.links[node]} + (forest.kinds[node] == 3); };
  // The input has these columns, so there are not many.
  std::vector<std::uint32_t> ends(2 * std::size_t{forest.columns});
  // Written for each node, and kept for splits: a branch here is seldom foreseen.
  std::vector<Split> splits(forest.kinds.size() + 1);
  std::size_t count = 0;
  for (std::size_t node = 0; node < forest.kinds.size(); ++node) {
    splits[count] = {ordered_bits(forest.thresholds[node]), static_cast<std::uint32_t>(node)};
    count += forest.kinds[node] & 1;
  }
  splits.resize(count);
  for (const Split &split : splits)
    ++ends[group_of(split.second)];
  sort_by_bits(splits);
  std::vector<std::uint32_t> begins(ends.size());
  std::uint32_t before = 0;
  for (std::size_t group = 0; group < ends.size(); ++group)
    begins[group] = before, before += ends[group], ends[group] = begins[group];
  std::vector<Split> placed(splits.size());
  for (const Split &split : splits)
    placed[ends[group_of(split.second)]++] = split;
  Tests tests;
  tests.of_node.resize(forest.kinds.size());
  for (std::size_t group = 0; group < ends.size(); ++group) {
    if (begins[group] == ends[group])
      continue;
    const auto first = static_cast<std::uint32_t>(tests.thresholds.size());
    for (std::uint32_t at = begins[group]; at < ends[group]; ++at) {
      const auto &[bits, node] = placed[at];
      if (at == begins[group] || bits != placed[at - 1].first)
        tests.thresholds.push_back(forest.thresholds[node]);
      tests.of_node[node] = static_cast<std::uint32_t>(tests.thresholds.size());
    }
    const auto count = static_cast<std::uint32_t>(tests.thresholds.size()) - first;
    tests.groups.push_back({static_cast<std::uint32_t>(group / 2), group % 2 == 1, first, count});
  }
  return tests;
}

template <class Real, class Index> std::shared_ptr<const Walk> made(const Forest &forest, Tests tests) {
  std::vector<Node<Index>> nodes(forest.kinds.size());
  std::size_t node = 0;
  for (const std::uint32_t size : forest.sizes) {
    std::uint32_t splits = 0;
    for (std::uint32_t own = 0; own < size; ++own, ++node) {
      const std::uint32_t is_split = forest.kinds[node] & 1;
      nodes[node] = {static_cast<Index>(tests.of_node[node]), static_cast<Index>((2 * splits + 1 - own) * is_split)};
      splits += is_split;
    }
  }
  std::vector<Real> thresholds(tests.thresholds.begin(), tests.thresholds.end());
  return std::make_shared<Trees<Real, Index>>(forest, std::move(tests.groups), std::move(thresholds), std::move(nodes));
}

} // namespace

std::shared_ptr<const Walk> walk_of(const Forest &forest) {
  Tests tests = tests_of(forest);
  std::size_t most = tests.thresholds.size();
  for (const std::uint32_t size : forest.sizes)
    most = std::max<std::size_t>(most, size);
  const bool small = most <= 0xFFFF;
  if (forest.kind == Kind::Float)
    return small ? made<float, std::uint16_t>(forest, std::move(tests)) : made<float, std::uint32_t>(forest, std::move(tests));
  return small ? made<double, std::uint16_t>(forest, std::move(tests)) : made<double, std::uint32_t>(forest, std::move(tests));
}

} // namespace policybridge::forms
