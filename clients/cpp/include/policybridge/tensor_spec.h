#ifndef POLICYBRIDGE_TENSOR_SPEC_H
#define POLICYBRIDGE_TENSOR_SPEC_H

#include "policybridge/status.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace policybridge {

/// In a shape: a dimension whose size may differ in each observation.
inline constexpr std::int64_t varies = -1;

/// Limit in bytes of all tensors of one message, with the varying dimensions taken as 1.
inline constexpr std::uint64_t max_layout_bytes = (std::uint64_t{1} << 31) - 1;

/// Most dimensions of a tensor: numpy's limit on the server's side.
inline constexpr std::size_t max_dimensions = 31;

/// Element types by LLVM's names (llvm/Analysis/TensorSpec.h), and bool and strings. The numbers are the C ABI's.
enum class ElementType : int {
  Float = 1,
  Double = 2,
  Int8 = 3,
  UInt8 = 4,
  Int16 = 5,
  UInt16 = 6,
  Int32 = 7,
  UInt32 = 8,
  Int64 = 9,
  UInt64 = 10,
  Bool = 11,
  Bytes = 12,
  String = 13,
};

/// The name on the wire: "float", "int64_t", "bool", "string", …
const char *to_string(ElementType type) noexcept;

/// The element type of that name; absent where no type has it.
std::optional<ElementType> element_type_from(std::string_view name) noexcept;

/// Bytes of one element; 0 for bytes and string, whose elements vary.
std::size_t element_size(ElementType type) noexcept;

/// Whether the elements are byte or character strings.
constexpr bool is_text(ElementType type) noexcept { return type == ElementType::Bytes || type == ElementType::String; }

namespace detail {
template <class> inline constexpr bool never = false;
} // namespace detail

/// The element type for a C++ type; it does not compile for other types.
template <class T> constexpr ElementType element_type_of() noexcept {
  if constexpr (std::is_same_v<T, float>)
    return ElementType::Float;
  else if constexpr (std::is_same_v<T, double>)
    return ElementType::Double;
  else if constexpr (std::is_same_v<T, bool>)
    return ElementType::Bool;
  else if constexpr (std::is_integral_v<T> && sizeof(T) == 1)
    return std::is_signed_v<T> ? ElementType::Int8 : ElementType::UInt8;
  else if constexpr (std::is_integral_v<T> && sizeof(T) == 2)
    return std::is_signed_v<T> ? ElementType::Int16 : ElementType::UInt16;
  else if constexpr (std::is_integral_v<T> && sizeof(T) == 4)
    return std::is_signed_v<T> ? ElementType::Int32 : ElementType::UInt32;
  else if constexpr (std::is_integral_v<T> && sizeof(T) == 8)
    return std::is_signed_v<T> ? ElementType::Int64 : ElementType::UInt64;
  else
    static_assert(detail::never<T>, "not an element type: float, double, bool or an integer of up to 64 bits");
}

/// A tensor's name, element type and shape; a dimension of −1 varies per observation, {} is a scalar.
struct TensorSpec {
  std::string name;
  ElementType type = ElementType::Int64;
  std::vector<std::int64_t> shape = {1};

  /// For short: `TensorSpec::of<std::int64_t>("cost_estimate")`.
  template <class T> static TensorSpec of(std::string name, std::vector<std::int64_t> shape = {1}) {
    return {std::move(name), element_type_of<T>(), std::move(shape)};
  }

  /// Whether any dimension is −1.
  bool is_varying() const noexcept;
  /// Whether every value of this tensor takes the same number of bytes.
  bool is_fixed() const noexcept { return !is_varying() && !is_text(type); }
  /// Number of elements, the varying dimensions taken as 1.
  std::uint64_t count() const noexcept;
  /// Number of bytes, the varying dimensions taken as 1; 0 for texts.
  std::uint64_t byte_size() const noexcept { return count() * element_size(type); }
  /// "cost_estimate: int64_t[1]", as in messages.
  std::string to_string() const;

  /// InvalidArgument: the name is empty or no UTF-8, a dimension is below −1, too many dimensions.
  /// ResourceExhausted: the fixed part exceeds `max_layout_bytes`. `count` and `byte_size` are exact only if this is
  /// Ok.
  Status check() const;
};

/// The tensors of a session: the features' specs in their order, and the advice's spec.
struct Signature {
  std::vector<TensorSpec> features;
  TensorSpec advice;

  /// Whether every observation has the same number of bytes.
  bool has_fixed_features() const noexcept;
  /// Bytes of an observation whose features are fixed.
  std::uint64_t observation_size() const noexcept;

  /// As `TensorSpec::check` of each; InvalidArgument where two features share a name; ResourceExhausted where the
  /// features together exceed `max_layout_bytes`.
  Status check() const;
};

} // namespace policybridge

#endif
