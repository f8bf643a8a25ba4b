#pragma once

#include "policybridge/form.h"
#include "policybridge/session.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace policybridge::forms {

enum class Opcode : unsigned {
  Map = 1,
  Pick = 2,
  Gather = 3,
  Place = 4,
  Multiply = 5,
  Reduce = 6,
  Argument = 7,
  Softmax = 8,
  Normalise = 9,
  Forest = 10,
};

enum class Function : unsigned {
  Cast = 1,
  Negative = 2,
  Absolute = 3,
  Sign = 4,
  Not = 5,
  IsNan = 6,
  Floor = 7,
  Ceil = 8,
  Round = 9,
  Sqrt = 10,
  Exp = 11,
  Log = 12,
  Erf = 13,
  Tanh = 14,
  Sigmoid = 15,
  Softplus = 16,
  Gelu = 17,
  GeluTanh = 18,
  Elu = 19,
  Celu = 20,
  Selu = 21,
  Add = 32,
  Subtract = 33,
  Times = 34,
  Divide = 35,
  Power = 36,
  Greatest = 37,
  Least = 38,
  AtLeast = 39,
  AtMost = 40,
  Slope = 41,
  Less = 48,
  LessEqual = 49,
  Greater = 50,
  GreaterEqual = 51,
  Equal = 52,
  And = 53,
  Or = 54,
  Xor = 55,
  Where = 64,
  BatchNorm = 65,
  Sum = 80,
  Mean = 81,
  Maximum = 82,
  Minimum = 83,
  Plain = 96,
  Logarithm = 97,
};

/// Element types by their numbers in a form.
enum class Kind : unsigned { Bool, Int8, UInt8, Int16, UInt16, Int32, UInt32, Int64, UInt64, Float, Double };

inline constexpr std::size_t kinds = 11;

/// Limit of the dimensions of a tensor.
inline constexpr std::size_t most_axes = 8;

/// Limit of a form's bytes.
inline constexpr std::size_t most_form_bytes = std::size_t{1} << 25;

constexpr std::size_t size_of(Kind kind) noexcept {
  constexpr std::array<unsigned char, kinds> sizes = {1, 1, 1, 2, 2, 4, 4, 8, 8, 4, 8};
  return sizes[static_cast<std::size_t>(kind)];
}

constexpr bool is_float(Kind kind) noexcept { return kind == Kind::Float || kind == Kind::Double; }
constexpr bool is_integer(Kind kind) noexcept { return !is_float(kind) && kind != Kind::Bool; }

enum class Space : unsigned { Constants, Observation, Work };
enum class Scores : unsigned { Advice, Logits, Probabilities, Choice };
enum class Aggregate : unsigned { Sum, Average, Min, Max };

struct Operand {
  Space space = Space::Constants;
  Kind kind = Kind::Bool;
  std::size_t offset = 0;
};

/// The memory of a decision.
struct Memory {
  std::array<const unsigned char *, 3> spaces = {};
  unsigned char *work = nullptr;
  /// For forests: the answers to their tests, and the leaves that are reached.
  unsigned char *tests = nullptr;
  std::uint32_t *leaves = nullptr;
  bool is_bad_index = false;
};

struct Instruction;
using Run = void (*)(const Instruction &, Memory &) noexcept;

/// A forest that is ready to be walked: many nodes ask the same, so each test is answered once.
struct Walk {
  virtual ~Walk() = default;
  virtual void run(const Instruction &instruction, Memory &memory) const noexcept = 0;
  std::size_t tests = 0;
  std::size_t trees = 0;
};

/// Numbers within the bytes of a form, which must outlive it; at any place in memory.
template <class T> class Numbers {
public:
  Numbers() = default;
  explicit Numbers(std::string_view bytes) : data_(bytes.data()), size_(bytes.size() / sizeof(T)) {}

  std::size_t size() const noexcept { return size_; }
  T operator[](std::size_t place) const noexcept {
    T number;
    std::memcpy(&number, data_ + place * sizeof number, sizeof number);
    return number;
  }
  std::vector<T> copy() const {
    std::vector<T> made(size_);
    if (size_)
      std::memcpy(made.data(), data_, size_ * sizeof(T));
    return made;
  }

private:
  const char *data_ = nullptr;
  std::size_t size_ = 0;
};

/// A forest as it stands in the file: its numbers are those of the form's bytes, while it is read.
struct Forest {
  Kind kind = Kind::Float;
  std::uint32_t columns = 0;
  std::uint32_t targets = 0;
  Aggregate aggregate = Aggregate::Sum;
  Numbers<std::uint32_t> sizes;
  Numbers<unsigned char> kinds;
  Numbers<std::uint32_t> links;
  Numbers<std::uint32_t> owners;
  // Of floats or doubles.
  std::string_view threshold_bytes;
  std::string_view weight_bytes;

  template <class Real> Numbers<Real> thresholds() const { return Numbers<Real>(threshold_bytes); }
  template <class Real> Numbers<Real> weights() const { return Numbers<Real>(weight_bytes); }
};

struct Instruction {
  Opcode opcode = Opcode::Map;
  Function function = Function::Plain;
  Operand output;
  std::vector<Operand> inputs;
  std::vector<std::size_t> sizes;
  std::array<double, 2> numbers = {};
  std::size_t number_count = 0;
  Run run = nullptr;
  std::shared_ptr<const Walk> walk;
};

struct Program {
  std::array<unsigned char, 32> digest = {};
  std::vector<FormFeature> features;
  std::size_t observation = 0;
  std::size_t work = 0;
  /// Of 8 bytes, for their place in memory.
  std::vector<std::uint64_t> constants;
  std::size_t constant_bytes = 0;
  std::vector<Forest> forests;
  std::vector<Instruction> instructions;
  Operand result;
  TensorSpec advice;
  Kind advice_kind = Kind::Float;
  Scores scores = Scores::Advice;
  std::size_t choices = 0;
  bool is_masked = false;
  std::size_t mask = 0;
  Kind mask_kind = Kind::Bool;
  /// The largest of the forests.
  std::size_t tests = 0;
  std::size_t trees = 0;

  std::size_t result_count() const noexcept {
    return scores == Scores::Logits || scores == Scores::Probabilities ? choices
                                                                       : static_cast<std::size_t>(advice.count());
  }
};

/// The element type of that number.
ElementType element_type_of(Kind kind) noexcept;

/// The function that runs an instruction whose operands have been checked.
Run run_of(const Instruction &instruction);

/// The tables of a forest that has been checked.
std::shared_ptr<const Walk> walk_of(const Forest &forest);

/// How a choice is drawn.
struct Draw {
  const Exploration *exploration = nullptr;
  std::uint64_t number = 0;        ///< of the decision in its session, from 1
  double *chances = nullptr;       ///< memory for one of each choice
  float log_probability = 0;       ///< of the choice that was drawn
};

/// Whether the mask allows a choice.
bool is_legal(const Program &program, const Memory &memory, std::size_t choice) noexcept;

/// The score of a choice, of logits or probabilities.
double score(const Program &program, const Memory &memory, std::size_t choice) noexcept;

/// Draw a choice by the steps of docs/forms.md; `best` is the one without exploration.
std::size_t draw_choice(const Program &program, const Memory &memory, std::size_t best, Draw &draw) noexcept;

/// How the result of a decision becomes advice; with a `draw` the choice is drawn, if there are choices.
FormOutcome choose(const Program &program, const Memory &memory, Draw *draw, void *advice) noexcept;

} // namespace policybridge::forms
