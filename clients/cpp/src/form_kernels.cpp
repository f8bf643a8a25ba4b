// The instructions of a form. Compiled without fused operations, so that results have the same bits everywhere, and
// without the assumption that memory keeps its type: a hostile form may read a float where it wrote an integer.
#include "form_arithmetic.h"
#include "form_program.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <type_traits>
#include <utility>

namespace policybridge::forms {

namespace {

constexpr std::size_t most_inputs = 5;

template <class T> const T *input(const Instruction &each, const Memory &memory, std::size_t place) noexcept {
  const Operand &operand = each.inputs[place];
  return reinterpret_cast<const T *>(memory.spaces[static_cast<std::size_t>(operand.space)] + operand.offset);
}

template <class T> T *output(const Instruction &each, const Memory &memory) noexcept {
  return reinterpret_cast<T *>(memory.work + each.output.offset);
}

// Of each element.

/// Elements along the last dimension, from the places of the inputs to those of the output, which overlap no input.
using Row = void (*)(const double *numbers, std::size_t count, const unsigned char *const *from, const std::size_t *steps,
                     unsigned char *to) noexcept;

/// Compute an element of the output from one of each input.
template <class F, class Out, class... In, std::size_t... I>
void compute(const double *numbers, std::size_t count, const unsigned char *const *from, const std::size_t *steps,
             Out *__restrict out, std::index_sequence<I...>) noexcept {
  const std::tuple<const In *...> in(reinterpret_cast<const In *>(from[I])...);
  // For the compiler's vectors.
  if (((steps[I] == 1) && ...)) {
    for (std::size_t i = 0; i < count; ++i)
      out[i] = static_cast<Out>(F::of(numbers, std::get<I>(in)[i]...));
    return;
  }
  for (std::size_t i = 0; i < count; ++i)
    out[i] = static_cast<Out>(F::of(numbers, std::get<I>(in)[i * steps[I]]...));
}

template <class F, class Out, class... In>
void row(const double *numbers, std::size_t count, const unsigned char *const *from, const std::size_t *steps,
         unsigned char *to) noexcept {
  compute<F, Out, In...>(numbers, count, from, steps, reinterpret_cast<Out *>(to), std::index_sequence_for<In...>());
}

/// Compute rows along the other dimensions: here for all functions, each of which is compiled for many types.
void over_rows(const Instruction &each, Memory &memory, Row row) noexcept {
  const std::size_t inputs = each.inputs.size();
  const std::size_t axes = each.sizes.size() / (1 + inputs);
  const std::size_t *dims = each.sizes.data();
  const std::size_t *strides = dims + axes;
  std::array<const unsigned char *, most_inputs> from = {};
  std::array<std::size_t, most_inputs> steps = {};
  for (std::size_t i = 0; i < inputs; ++i) {
    from[i] = input<unsigned char>(each, memory, i);
    steps[i] = axes ? strides[axes * i + axes - 1] : 0;
  }
  unsigned char *to = output<unsigned char>(each, memory);
  const std::size_t columns = axes ? dims[axes - 1] : 1;
  std::size_t rows = columns ? 1 : 0;
  for (std::size_t axis = 0; axis + 1 < axes; ++axis)
    rows *= dims[axis];
  std::array<std::size_t, most_axes> index = {};
  while (rows-- > 0) {
    row(each.numbers.data(), columns, from.data(), steps.data(), to);
    to += columns * size_of(each.output.kind);
    for (std::size_t axis = axes ? axes - 1 : 0; axis-- > 0;) {
      const bool is_over = ++index[axis] == dims[axis];
      for (std::size_t i = 0; i < inputs; ++i) {
        const std::size_t stride = strides[axes * i + axis] * size_of(each.inputs[i].kind);
        if (is_over)
          from[i] -= (dims[axis] - 1) * stride;
        else
          from[i] += stride;
      }
      if (!is_over)
        break;
      index[axis] = 0;
    }
  }
}

template <class F, class Out, class... In> void map(const Instruction &each, Memory &memory) noexcept {
  static_assert(sizeof...(In) <= most_inputs);
  over_rows(each, memory, row<F, Out, In...>);
}

/// Compute with integers so that an overflow wraps; with floats in their own type.
template <class T> using Wrapping = std::conditional_t<std::is_floating_point_v<T>, T, std::uint64_t>;

template <class T> constexpr bool nan(T x) noexcept {
  if constexpr (std::is_floating_point_v<T>)
    return x != x;
  return false;
}

template <class Out> struct CastTo {
  template <class T> static Out of(const double *, T x) noexcept {
    if constexpr (std::is_floating_point_v<T> && std::is_integral_v<Out>) {
      if constexpr (std::is_same_v<Out, std::uint64_t>)
        return to_uint64(x);
      else if constexpr (sizeof(Out) < 4 || std::is_same_v<Out, std::int32_t>)
        return static_cast<Out>(to_int32(x));
      else
        return static_cast<Out>(to_int64(x));
    } else {
      return static_cast<Out>(x);
    }
  }
};
struct ToBool {
  template <class T> static unsigned char of(const double *, T x) noexcept { return x != 0; }
};
struct Negative {
  template <class T> static T of(const double *, T x) noexcept {
    if constexpr (std::is_floating_point_v<T>)
      return -x;
    else
      return static_cast<T>(std::uint64_t{0} - static_cast<std::uint64_t>(x));
  }
};
struct Absolute {
  template <class T> static T of(const double *numbers, T x) noexcept { return x < 0 ? Negative::of(numbers, x) : x; }
};
struct Sign {
  template <class T> static T of(const double *, T x) noexcept {
    return nan(x) ? x : static_cast<T>((x > 0) - (x < 0));
  }
};
struct Not {
  template <class T> static unsigned char of(const double *, T x) noexcept { return x == 0; }
};
struct IsNan {
  template <class T> static unsigned char of(const double *, T x) noexcept { return x != x; }
};
template <double (*F)(double) noexcept> struct Wide {
  template <class T> static double of(const double *, T x) noexcept { return F(x); }
};
struct Softplus {
  template <class T> static double of(const double *, T x) noexcept {
    return (x > 0 ? x : 0) + log(1.0 + exp(x > 0 ? -x : x));
  }
};
struct Gelu {
  template <class T> static double of(const double *, T given) noexcept {
    const double x = given;
    return 0.5 * x * (1.0 + erf(x * 0.7071067811865476));
  }
};
struct GeluTanh {
  template <class T> static double of(const double *, T given) noexcept {
    const double x = given;
    return 0.5 * x * (1.0 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
  }
};
struct Elu {
  template <class T> static T of(const double *numbers, T x) noexcept {
    return x < 0 ? static_cast<T>(numbers[0] * (exp(x) - 1.0)) : x;
  }
};
struct Celu {
  template <class T> static T of(const double *numbers, T x) noexcept {
    return x > 0 ? x : static_cast<T>(numbers[0] * (exp(static_cast<double>(x) / numbers[0]) - 1.0));
  }
};
struct Selu {
  template <class T> static double of(const double *numbers, T x) noexcept {
    return numbers[1] * (x > 0 ? static_cast<double>(x) : numbers[0] * (exp(x) - 1.0));
  }
};
struct Add {
  template <class T> static T of(const double *, T x, T y) noexcept {
    return static_cast<T>(static_cast<Wrapping<T>>(x) + static_cast<Wrapping<T>>(y));
  }
};
struct Subtract {
  template <class T> static T of(const double *, T x, T y) noexcept {
    return static_cast<T>(static_cast<Wrapping<T>>(x) - static_cast<Wrapping<T>>(y));
  }
};
struct Times {
  template <class T> static T of(const double *, T x, T y) noexcept {
    return static_cast<T>(static_cast<Wrapping<T>>(x) * static_cast<Wrapping<T>>(y));
  }
};
struct Divide {
  template <class T> static T of(const double *, T x, T y) noexcept { return x / y; }
};
struct Power {
  template <class T, class U> static T of(const double *, T x, U y) noexcept {
    return static_cast<T>(power(static_cast<double>(x), static_cast<double>(y)));
  }
};
struct Greatest {
  template <class T> static T of(const double *, T x, T y) noexcept { return y > x || nan(y) ? y : x; }
};
struct Least {
  template <class T> static T of(const double *, T x, T y) noexcept { return y < x || nan(y) ? y : x; }
};
struct AtLeast {
  template <class T> static T of(const double *, T x, T y) noexcept { return x < y ? y : x; }
};
struct AtMost {
  template <class T> static T of(const double *, T x, T y) noexcept { return x > y ? y : x; }
};
struct Slope {
  template <class T> static T of(const double *, T x, T y) noexcept { return x < 0 ? y * x : x; }
};
struct Less {
  template <class T> static unsigned char of(const double *, T x, T y) noexcept { return x < y; }
};
struct LessEqual {
  template <class T> static unsigned char of(const double *, T x, T y) noexcept { return x <= y; }
};
struct Greater {
  template <class T> static unsigned char of(const double *, T x, T y) noexcept { return x > y; }
};
struct GreaterEqual {
  template <class T> static unsigned char of(const double *, T x, T y) noexcept { return x >= y; }
};
struct Equal {
  template <class T> static unsigned char of(const double *, T x, T y) noexcept { return x == y; }
};
struct And {
  template <class T> static unsigned char of(const double *, T x, T y) noexcept { return x != 0 && y != 0; }
};
struct Or {
  template <class T> static unsigned char of(const double *, T x, T y) noexcept { return x != 0 || y != 0; }
};
struct Xor {
  template <class T> static unsigned char of(const double *, T x, T y) noexcept { return (x != 0) != (y != 0); }
};
struct Where {
  template <class T> static T of(const double *, unsigned char test, T x, T y) noexcept { return test ? x : y; }
};
struct BatchNorm {
  template <class T> static double of(const double *numbers, T x, T scale, T bias, T mean, T spread) noexcept {
    const T apart = x - mean;
    return static_cast<double>(apart) / sqrt(static_cast<double>(spread) + numbers[0]) * scale + bias;
  }
};

/// Call `then` with a null pointer to the type of that number.
template <class Then> auto typed(Kind kind, Then then) {
  switch (kind) {
  case Kind::Bool:
  case Kind::UInt8:
    return then(static_cast<std::uint8_t *>(nullptr));
  case Kind::Int8:
    return then(static_cast<std::int8_t *>(nullptr));
  case Kind::Int16:
    return then(static_cast<std::int16_t *>(nullptr));
  case Kind::UInt16:
    return then(static_cast<std::uint16_t *>(nullptr));
  case Kind::Int32:
    return then(static_cast<std::int32_t *>(nullptr));
  case Kind::UInt32:
    return then(static_cast<std::uint32_t *>(nullptr));
  case Kind::Int64:
    return then(static_cast<std::int64_t *>(nullptr));
  case Kind::UInt64:
    return then(static_cast<std::uint64_t *>(nullptr));
  case Kind::Float:
    return then(static_cast<float *>(nullptr));
  default:
    return then(static_cast<double *>(nullptr));
  }
}

template <class Pointer> using Pointed = std::remove_pointer_t<Pointer>;

/// An unsigned integer of the same bits. Where a result has the same bits, signs need no code of their own.
template <std::size_t Size>
using Bits = std::conditional_t<
    Size == 1, std::uint8_t,
    std::conditional_t<Size == 2, std::uint16_t, std::conditional_t<Size == 4, std::uint32_t, std::uint64_t>>>;
template <class T> using Unsigned = std::conditional_t<std::is_floating_point_v<T>, T, Bits<sizeof(T)>>;

Run cast_of(Kind from, Kind to) {
  return typed(from, [to](auto x) -> Run {
    using In = Pointed<decltype(x)>;
    if (to == Kind::Bool)
      return map<ToBool, unsigned char, Unsigned<In>>;
    return typed(to, [](auto y) -> Run {
      using To = Pointed<decltype(y)>;
      // Floats saturate at the ends of wide types.
      using Out = std::conditional_t<std::is_integral_v<In> || sizeof(To) < 4, Unsigned<To>, To>;
      using From = std::conditional_t<std::is_integral_v<Out> && sizeof(Out) <= sizeof(In), Unsigned<In>, In>;
      return map<CastTo<Out>, Out, From>;
    });
  });
}

template <class T> Run float_function(Function function, Kind second) {
  switch (function) {
  case Function::IsNan:
    return map<IsNan, unsigned char, T>;
  case Function::Floor:
    return map<Wide<floor>, T, T>;
  case Function::Ceil:
    return map<Wide<ceil>, T, T>;
  case Function::Round:
    return map<Wide<round_even>, T, T>;
  case Function::Sqrt:
    return map<Wide<sqrt>, T, T>;
  case Function::Exp:
    return map<Wide<exp>, T, T>;
  case Function::Log:
    return map<Wide<log>, T, T>;
  case Function::Erf:
    return map<Wide<erf>, T, T>;
  case Function::Tanh:
    return map<Wide<tanh>, T, T>;
  case Function::Sigmoid:
    return map<Wide<sigmoid>, T, T>;
  case Function::Softplus:
    return map<Softplus, T, T>;
  case Function::Gelu:
    return map<Gelu, T, T>;
  case Function::GeluTanh:
    return map<GeluTanh, T, T>;
  case Function::Elu:
    return map<Elu, T, T>;
  case Function::Celu:
    return map<Celu, T, T>;
  case Function::Selu:
    return map<Selu, T, T>;
  case Function::Divide:
    return map<Divide, T, T, T>;
  case Function::Slope:
    return map<Slope, T, T, T>;
  case Function::BatchNorm:
    return map<BatchNorm, T, T, T, T, T, T>;
  default: // Power
    return typed(second, [](auto y) -> Run { return map<Power, T, T, Pointed<decltype(y)>>; });
  }
}

template <class T> Run function_of(Function function, Kind second) {
  using U = Unsigned<T>;
  switch (function) {
  case Function::Negative:
    return map<Negative, U, U>;
  case Function::Absolute:
    return map<Absolute, T, T>;
  case Function::Sign:
    return map<Sign, T, T>;
  case Function::Not:
    return map<Not, unsigned char, U>;
  case Function::Add:
    return map<Add, U, U, U>;
  case Function::Subtract:
    return map<Subtract, U, U, U>;
  case Function::Times:
    return map<Times, U, U, U>;
  case Function::Greatest:
    return map<Greatest, T, T, T>;
  case Function::Least:
    return map<Least, T, T, T>;
  case Function::AtLeast:
    return map<AtLeast, T, T, T>;
  case Function::AtMost:
    return map<AtMost, T, T, T>;
  case Function::Less:
    return map<Less, unsigned char, T, T>;
  case Function::LessEqual:
    return map<LessEqual, unsigned char, T, T>;
  case Function::Greater:
    return map<Greater, unsigned char, T, T>;
  case Function::GreaterEqual:
    return map<GreaterEqual, unsigned char, T, T>;
  case Function::Equal:
    return map<Equal, unsigned char, U, U>;
  case Function::And:
    return map<And, unsigned char, unsigned char, unsigned char>;
  case Function::Or:
    return map<Or, unsigned char, unsigned char, unsigned char>;
  case Function::Xor:
    return map<Xor, unsigned char, unsigned char, unsigned char>;
  case Function::Where: {
    using Same = Bits<sizeof(T)>;
    return map<Where, Same, unsigned char, Same, Same>;
  }
  default:
    if constexpr (std::is_floating_point_v<T>)
      return float_function<T>(function, second);
    return nullptr;
  }
}

// Of several elements.

template <class T> void pick(const Instruction &each, Memory &memory) noexcept {
  const T *x = input<T>(each, memory, 0);
  const std::uint32_t *table = input<std::uint32_t>(each, memory, 1);
  T *out = output<T>(each, memory);
  for (std::size_t i = 0; i < each.sizes[0]; ++i)
    out[i] = x[table[i]];
}

template <class Index> std::int64_t position(Index index, std::size_t size) noexcept {
  const auto most = static_cast<std::int64_t>(size);
  if constexpr (std::is_same_v<Index, std::uint64_t>)
    return index < size ? static_cast<std::int64_t>(index) : -1;
  const auto at = static_cast<std::int64_t>(index);
  return at < -most || at >= most ? -1 : at < 0 ? at + most : at;
}

template <class Index> void gather(const Instruction &each, Memory &memory) noexcept {
  const std::size_t outer = each.sizes[0];
  const std::size_t size = each.sizes[1];
  const std::size_t count = each.sizes[3];
  const std::size_t inner = each.sizes[2] * size_of(each.output.kind);
  const unsigned char *data = input<unsigned char>(each, memory, 0);
  const Index *indices = input<Index>(each, memory, 1);
  unsigned char *out = output<unsigned char>(each, memory);
  for (std::size_t g = 0; g < count; ++g) {
    std::int64_t at = position(indices[g], size);
    if (at < 0) {
      memory.is_bad_index = true;
      return;
    }
    for (std::size_t o = 0; o < outer; ++o)
      std::memcpy(out + (o * count + g) * inner, data + (o * size + static_cast<std::size_t>(at)) * inner, inner);
  }
}

void place(const Instruction &each, Memory &memory) noexcept {
  const std::size_t element = size_of(each.output.kind);
  const unsigned char *x = input<unsigned char>(each, memory, 0);
  unsigned char *out = output<unsigned char>(each, memory);
  for (std::size_t o = 0; o < each.sizes[0]; ++o)
    std::memcpy(out + o * each.sizes[2] * element, x + o * each.sizes[1] * element, each.sizes[1] * element);
}

template <class T> void multiply(const Instruction &each, Memory &memory) noexcept {
  const std::size_t rows = each.sizes[0];
  const std::size_t inner = each.sizes[1];
  const std::size_t columns = each.sizes[2];
  const std::size_t *strides = each.sizes.data() + 3;
  const T *a = input<T>(each, memory, 0);
  const T *b = input<T>(each, memory, 1);
  T *out = output<T>(each, memory);
  for (std::size_t r = 0; r < rows; ++r, out += columns) {
    // By rows of the second matrix where they lie in one piece: compilers make vectors of that.
    if (strides[3] == 1 && columns > 1) {
      std::fill(out, out + columns, T(0));
      for (std::size_t k = 0; k < inner; ++k) {
        const T x = a[r * strides[0] + k * strides[1]];
        const T *row = b + k * strides[2];
        for (std::size_t c = 0; c < columns; ++c)
          out[c] = Add::of(nullptr, out[c], Times::of(nullptr, x, row[c]));
      }
      continue;
    }
    for (std::size_t c = 0; c < columns; ++c) {
      T sum = 0;
      for (std::size_t k = 0; k < inner; ++k)
        sum = Add::of(nullptr, sum,
                      Times::of(nullptr, a[r * strides[0] + k * strides[1]], b[k * strides[2] + c * strides[3]]));
      out[c] = sum;
    }
  }
}

template <class T> void reduce(const Instruction &each, Memory &memory) noexcept {
  const std::size_t size = each.sizes[1];
  const T *x = input<T>(each, memory, 0);
  T *out = output<T>(each, memory);
  for (std::size_t group = 0; group < each.sizes[0]; ++group, x += size) {
    T all = each.function == Function::Maximum || each.function == Function::Minimum ? x[0] : T(0);
    for (std::size_t i = 0; i < size; ++i) {
      if (each.function == Function::Maximum)
        all = x[i] > all ? x[i] : all;
      else if (each.function == Function::Minimum)
        all = x[i] < all ? x[i] : all;
      else
        all += x[i];
    }
    out[group] = each.function == Function::Mean ? all / static_cast<T>(size) : all;
  }
}

template <class T> void argument(const Instruction &each, Memory &memory) noexcept {
  const std::size_t size = each.sizes[1];
  const T *x = input<T>(each, memory, 0);
  std::int64_t *out = output<std::int64_t>(each, memory);
  for (std::size_t group = 0; group < each.sizes[0]; ++group, x += size) {
    std::size_t best = 0;
    for (std::size_t i = 0; i < size; ++i)
      if (each.function == Function::Maximum ? x[i] > x[best] : x[i] < x[best])
        best = i;
    out[group] = static_cast<std::int64_t>(best);
  }
}

template <class T> void softmax(const Instruction &each, Memory &memory) noexcept {
  const std::size_t size = each.sizes[1];
  const T *x = input<T>(each, memory, 0);
  T *out = output<T>(each, memory);
  for (std::size_t group = 0; group < each.sizes[0]; ++group, x += size, out += size) {
    T most = x[0];
    double total = 0;
    for (std::size_t i = 0; i < size; ++i)
      most = x[i] > most ? x[i] : most;
    for (std::size_t i = 0; i < size; ++i)
      total += exp(static_cast<double>(static_cast<T>(x[i] - most)));
    const bool is_log = each.function == Function::Logarithm;
    if (is_log)
      total = log(total);
    for (std::size_t i = 0; i < size; ++i) {
      const auto below = static_cast<double>(static_cast<T>(x[i] - most));
      out[i] = static_cast<T>(is_log ? below - total : exp(below) / total);
    }
  }
}

template <class T> void normalise(const Instruction &each, Memory &memory) noexcept {
  const std::size_t size = each.sizes[1];
  const T *x = input<T>(each, memory, 0);
  const T *scale = input<T>(each, memory, 1);
  const T *bias = each.inputs.size() > 2 ? input<T>(each, memory, 2) : nullptr;
  T *out = output<T>(each, memory);
  for (std::size_t group = 0; group < each.sizes[0]; ++group, x += size, out += size) {
    double mean = 0;
    double spread = 0;
    for (std::size_t i = 0; i < size; ++i)
      mean += x[i];
    mean /= static_cast<double>(size);
    for (std::size_t i = 0; i < size; ++i)
      spread += (static_cast<double>(x[i]) - mean) * (static_cast<double>(x[i]) - mean);
    spread = sqrt(spread / static_cast<double>(size) + each.numbers[0]);
    for (std::size_t i = 0; i < size; ++i) {
      const T normal = static_cast<T>((static_cast<double>(x[i]) - mean) / spread) * scale[i * each.sizes[2]];
      out[i] = bias ? normal + bias[i * each.sizes[3]] : normal;
    }
  }
}

void walk(const Instruction &each, Memory &memory) noexcept { each.walk->run(each, memory); }

} // namespace

Run run_of(const Instruction &each) {
  const Kind out = each.output.kind;
  switch (each.opcode) {
  case Opcode::Map: {
    if (each.function == Function::Cast)
      return cast_of(each.inputs[0].kind, out);
    const Kind kind = each.function == Function::Where ? out : each.inputs[0].kind;
    const Kind second = each.inputs.size() > 1 ? each.inputs[1].kind : kind;
    return typed(kind, [&](auto x) { return function_of<Pointed<decltype(x)>>(each.function, second); });
  }
  case Opcode::Pick:
    return typed(out, [](auto x) -> Run { return pick<Bits<sizeof(Pointed<decltype(x)>)>>; });
  case Opcode::Gather:
    return typed(each.inputs[1].kind, [](auto x) -> Run {
      using Index = Pointed<decltype(x)>;
      if constexpr (std::is_integral_v<Index>)
        return gather<Index>;
      return nullptr;
    });
  case Opcode::Place:
    return place;
  case Opcode::Multiply:
    return typed(out, [](auto x) -> Run { return multiply<Unsigned<Pointed<decltype(x)>>>; });
  case Opcode::Reduce:
    return out == Kind::Float ? reduce<float> : reduce<double>;
  case Opcode::Argument:
    return typed(each.inputs[0].kind, [](auto x) -> Run { return argument<Pointed<decltype(x)>>; });
  case Opcode::Softmax:
    return out == Kind::Float ? softmax<float> : softmax<double>;
  case Opcode::Normalise:
    return out == Kind::Float ? normalise<float> : normalise<double>;
  case Opcode::Forest:
    return walk;
  }
  return nullptr;
}

namespace {

const unsigned char *result_of(const Program &program, const Memory &memory) noexcept {
  return memory.spaces[static_cast<std::size_t>(program.result.space)] + program.result.offset;
}

/// The result as advice: an error if it has NaN.
FormOutcome advise(const Program &program, const unsigned char *result, void *advice) noexcept {
  const std::size_t count = program.result_count();
  if (is_float(program.result.kind)) {
    for (std::size_t i = 0; i < count; ++i) {
      const bool wrong = program.result.kind == Kind::Float ? nan(reinterpret_cast<const float *>(result)[i])
                                                             : nan(reinterpret_cast<const double *>(result)[i]);
      if (wrong)
        return FormOutcome::Nan;
    }
  }
  std::memcpy(advice, result, count * size_of(program.result.kind));
  return FormOutcome::Ok;
}

FormOutcome take_own(const Program &program, const Memory &memory, std::size_t &chosen) noexcept {
  bool any = false;
  for (std::size_t i = 0; i < program.choices && !any; ++i)
    any = is_legal(program, memory, i);
  if (!any)
    return FormOutcome::NoLegalChoice;
  const unsigned char *result = result_of(program, memory);
  const std::int64_t own = typed(program.result.kind, [&](auto x) -> std::int64_t {
    using T = Pointed<decltype(x)>;
    return static_cast<std::int64_t>(*reinterpret_cast<const T *>(result));
  });
  if (own < 0 || own >= static_cast<std::int64_t>(program.choices) ||
      !is_legal(program, memory, static_cast<std::size_t>(own)))
    return FormOutcome::IllegalChoice;
  chosen = static_cast<std::size_t>(own);
  return FormOutcome::Ok;
}

FormOutcome take_best(const Program &program, const Memory &memory, std::size_t &chosen) noexcept {
  chosen = program.choices;
  for (std::size_t i = 0; i < program.choices; ++i) {
    if (!is_legal(program, memory, i))
      continue;
    const double given = score(program, memory, i);
    if (nan(given) || (program.scores == Scores::Probabilities && given < 0))
      return FormOutcome::Nan;
    if (chosen == program.choices || given > score(program, memory, chosen))
      chosen = i;
  }
  return chosen == program.choices ? FormOutcome::NoLegalChoice : FormOutcome::Ok;
}

void write_choice(const Program &program, std::size_t chosen, void *advice) noexcept {
  typed(program.advice_kind, [&](auto x) {
    using T = Pointed<decltype(x)>;
    const T made = static_cast<T>(chosen);
    std::memcpy(advice, &made, sizeof made);
    return 0;
  });
}

} // namespace

bool is_legal(const Program &program, const Memory &memory, std::size_t choice) noexcept {
  if (!program.is_masked)
    return true;
  const unsigned char *mask = memory.spaces[1] + program.features[program.mask].offset;
  return typed(program.mask_kind,
               [&](auto x) { return reinterpret_cast<const Pointed<decltype(x)> *>(mask)[choice] != 0; });
}

double score(const Program &program, const Memory &memory, std::size_t choice) noexcept {
  const unsigned char *result = result_of(program, memory);
  return program.result.kind == Kind::Float ? static_cast<double>(reinterpret_cast<const float *>(result)[choice])
                                             : reinterpret_cast<const double *>(result)[choice];
}

FormOutcome choose(const Program &program, const Memory &memory, Draw *draw, void *advice) noexcept {
  if (program.scores == Scores::Advice)
    return advise(program, result_of(program, memory), advice);
  std::size_t chosen = 0;
  const FormOutcome outcome = program.scores == Scores::Choice ? take_own(program, memory, chosen)
                                                               : take_best(program, memory, chosen);
  if (outcome != FormOutcome::Ok)
    return outcome;
  write_choice(program, draw ? draw_choice(program, memory, chosen, *draw) : chosen, advice);
  return outcome;
}

} // namespace policybridge::forms
