// Trees, walked without branches. Many nodes ask the same, so each distinct test is answered once for an observation:
// the tests of a column lie in the order of their thresholds, and as many are true as it has thresholds below x.
#include "form_program.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>
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

/// The bits of a number that is not NaN, in the order of such numbers.
template <class Real> auto ordered_bits(Real number) noexcept {
  using Bits = std::conditional_t<sizeof(Real) == sizeof(float), std::uint32_t, std::uint64_t>;
  constexpr Bits sign = Bits{1} << (8 * sizeof(Bits) - 1);
  number += Real(0); // −0 and 0 are one
  Bits bits = 0;
  std::memcpy(&bits, &number, sizeof bits);
  return bits ^ ((bits & sign ? ~Bits{0} : Bits{0}) | sign);
}

/// Memory that is written before it is read.
template <class T> class Raw {
public:
  explicit Raw(std::size_t size) : own_(new T[size]), size_(size) {}

  T &operator[](std::size_t place) noexcept { return own_[place]; }
  const T &operator[](std::size_t place) const noexcept { return own_[place]; }
  T *begin() noexcept { return own_.get(); }
  T *end() noexcept { return own_.get() + size_; }
  const T *data() const noexcept { return own_.get(); }
  std::size_t size() const noexcept { return size_; }
  void shrink(std::size_t size) noexcept { size_ = size; }
  void swap(Raw &other) noexcept { std::swap(own_, other.own_), std::swap(size_, other.size_); }

private:
  std::unique_ptr<T[]> own_;
  std::size_t size_;
};

/// A split, with its test.
template <class Real> struct Split {
  decltype(ordered_bits(Real())) bits; ///< of its threshold
  std::uint32_t node;
  std::uint32_t group; ///< twice its column, and 1 if NaN passes; later the number of its test
};

/// The tests of a forest: the distinct ones, numbered from 1 by column, whether NaN passes, and threshold.
template <class Real> struct Tests {
  std::vector<Group> groups;
  std::vector<Real> thresholds;
  Raw<Split<Real>> splits; ///< with the numbers of their tests
};

template <class Real, class Index> class Trees final : public Walk {
public:
  Trees(const Forest &forest, Tests<Real> distinct)
      : groups_(std::move(distinct.groups)), thresholds_(std::move(distinct.thresholds)), nodes_(forest.kinds.size()),
        targets_(forest.targets), aggregate_(forest.aggregate), leaves_(is_summed() ? forest.kinds.size() : 0),
        begins_(is_summed() ? 0 : forest.kinds.size() + 1) {
    // The answers to the tests, later which targets have a weight.
    tests = std::max<std::size_t>(thresholds_.size() + 1 + stride, targets_);
    trees = forest.sizes.size();
    for (const Group &group : groups_)
      most_ = std::max<std::size_t>(most_, group.count);
    answers_.assign(most_, 1);
    answers_.resize(2 * most_ + stride, 0);
    order(lay_out_trees(forest), forest);
    for (const Split<Real> &split : distinct.splits)
      nodes_[split.node].test = static_cast<Index>(split.group);
    if (is_summed())
      lay_out_leaves(forest);
    else
      lay_out_weights(forest);
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
    const auto weights = forest.weights<Real>();
    const auto kinds = forest.kinds;
    Real *leaf = leaves_.begin();
    std::size_t weight = 0;
    // A split gets that of the next leaf, which nobody reads: a branch here is seldom foreseen. The last node is a leaf.
    for (std::size_t node = 0; node < kinds.size(); ++node) {
      *leaf++ = weights[weight];
      weight += ~kinds[node] & 1;
    }
  }

  void lay_out_weights(const Forest &forest) {
    owners_ = forest.owners.copy();
    weights_ = forest.weights<Real>().copy();
    const auto kinds = forest.kinds;
    const auto links = forest.links;
    std::uint32_t *own = begins_.begin();
    std::uint32_t begin = 0;
    for (std::size_t node = 0; node < kinds.size(); ++node) {
      *own++ = begin;
      begin += links[node] & ((kinds[node] & 1u) - 1);
    }
    *own = begin;
  }

  /// Set how far each split's children are; give the levels of each tree below its root. A split has two nodes on the
  /// next level.
  std::vector<std::uint32_t> lay_out_trees(const Forest &forest) {
    std::vector<std::uint32_t> depths(trees);
    const auto kinds = forest.kinds;
    std::size_t at = 0;
    Node<Index> *node = nodes_.begin();
    for (std::size_t tree = 0; tree < trees; ++tree) {
      // How far the next children are; each node on the way is nearer by one.
      std::uint32_t away = 1, depth = 0;
      const Node<Index> *const end = node + forest.sizes[tree];
      for (const Node<Index> *level = node + 1; node < end; ++node) {
        if (node == level)
          ++depth, level = node + away;
        const std::uint32_t is_split = kinds[at++] & 1;
        *node = {0, static_cast<Index>(is_split ? away : 0)};
        away += 2 * is_split - 1;
      }
      depths[tree] = depth;
    }
    return depths;
  }

  /// Trees that are about as deep are walked together: their steps do not wait for each other.
  void order(const std::vector<std::uint32_t> &depths, const Forest &forest) {
    std::vector<std::uint64_t> keys(trees);
    std::vector<std::uint32_t> roots(trees);
    std::uint32_t root = 0;
    for (std::size_t tree = 0; tree < trees; ++tree) {
      keys[tree] = std::uint64_t{depths[tree]} << 32 | tree;
      roots[tree] = root;
      root += forest.sizes[tree];
    }
    std::sort(keys.begin(), keys.end());
    for (std::size_t place = 0; place < trees; ++place) {
      const auto tree = static_cast<std::uint32_t>(keys[place]);
      order_.push_back(tree);
      roots_.push_back(roots[tree]);
      if (place % together == together - 1 || place + 1 == trees)
        depths_.push_back(depths[tree]);
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
  Raw<Node<Index>> nodes_;
  std::vector<std::uint32_t> order_;
  std::vector<std::uint32_t> roots_;
  std::vector<std::uint32_t> depths_;
  std::uint32_t targets_;
  Aggregate aggregate_;
  // Of a sum of one target the weights by node; else those of all leaves, their targets, and where those of a node begin.
  Raw<Real> leaves_;
  std::vector<Real> weights_;
  std::vector<std::uint32_t> owners_;
  Raw<std::uint32_t> begins_;
};

/// Move splits to another place by a number of theirs below `count`; those of the same number keep their order.
template <class Real, class NumberOf>
void place_by(Raw<Split<Real>> &splits, Raw<Split<Real>> &sorted, std::vector<std::uint32_t> &places, std::size_t count,
              NumberOf number_of) {
  places.assign(count, 0);
  for (const Split<Real> &split : splits)
    ++places[number_of(split)];
  std::uint32_t begin = 0;
  for (std::uint32_t &place : places)
    begin += std::exchange(place, begin);
  for (const Split<Real> &split : splits)
    sorted[places[number_of(split)]++] = split;
  splits.swap(sorted);
}

/// Sort by group, then by threshold, digit by digit, which takes the time of comparisons of few splits, and a fifth of
/// many. A digit that all splits share takes no step.
template <class Real> void sort_splits(Raw<Split<Real>> &splits, std::size_t groups) {
  constexpr unsigned digit = 11;
  constexpr std::size_t mask = (std::size_t{1} << digit) - 1;
  using Bits = decltype(Split<Real>::bits);
  Bits any = 0, all = static_cast<Bits>(~Bits{0});
  for (const Split<Real> &split : splits)
    any |= split.bits, all &= split.bits;
  Raw<Split<Real>> sorted(splits.size());
  std::vector<std::uint32_t> places;
  for (unsigned shift = 0; shift < 8 * sizeof(Bits); shift += digit)
    if ((any ^ all) >> shift & mask)
      place_by(splits, sorted, places, mask + 1,
               [shift](const Split<Real> &split) { return split.bits >> shift & mask; });
  place_by(splits, sorted, places, groups, [](const Split<Real> &split) { return split.group; });
}

template <class Real> Raw<Split<Real>> splits_of(const Forest &forest) {
  const auto kinds = forest.kinds;
  const auto links = forest.links;
  const auto thresholds = forest.thresholds<Real>();
  // Written for each node, and kept for splits, which are less than half of the nodes: a branch here is seldom foreseen.
  Raw<Split<Real>> splits(kinds.size() / 2 + 1);
  Split<Real> *next = splits.begin();
  for (std::size_t node = 0; node < kinds.size(); ++node) {
    const std::uint32_t kind = kinds[node];
    *next = {ordered_bits(thresholds[node]), static_cast<std::uint32_t>(node), 2 * links[node] + (kind >> 1)};
    next += kind & 1;
  }
  splits.shrink(static_cast<std::size_t>(next - splits.begin()));
  return splits;
}

/// Sorted, column by column: a form can make many tests, but no collisions.
template <class Real> Tests<Real> tests_of(const Forest &forest) {
  Tests<Real> tests{{}, {}, splits_of<Real>(forest)};
  // The input has these columns, so there are not many.
  sort_splits(tests.splits, 2 * std::size_t{forest.columns});
  const auto thresholds = forest.thresholds<Real>();
  std::uint32_t group = ~std::uint32_t{0}, test = 0;
  decltype(Split<Real>::bits) bits = 0;
  for (Split<Real> &split : tests.splits) {
    if (split.group != group)
      tests.groups.push_back({split.group / 2, split.group % 2 == 1, test, 0});
    if (split.group != group || split.bits != bits) {
      tests.thresholds.push_back(thresholds[split.node]);
      ++tests.groups.back().count;
      ++test;
    }
    group = split.group, bits = split.bits;
    split.group = test;
  }
  return tests;
}

template <class Real> std::shared_ptr<const Walk> made(const Forest &forest) {
  Tests<Real> tests = tests_of<Real>(forest);
  std::size_t most = tests.thresholds.size();
  for (std::size_t tree = 0; tree < forest.sizes.size(); ++tree)
    most = std::max<std::size_t>(most, forest.sizes[tree]);
  if (most <= 0xFFFF)
    return std::make_shared<Trees<Real, std::uint16_t>>(forest, std::move(tests));
  return std::make_shared<Trees<Real, std::uint32_t>>(forest, std::move(tests));
}

} // namespace

std::shared_ptr<const Walk> walk_of(const Forest &forest) {
  return forest.kind == Kind::Float ? made<float>(forest) : made<double>(forest);
}

} // namespace policybridge::forms
