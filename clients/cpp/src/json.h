#ifndef POLICYBRIDGE_SRC_JSON_H
#define POLICYBRIDGE_SRC_JSON_H

#include "policybridge/status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// A small JSON reader, so that the library needs libc alone.
namespace policybridge::json {

/// Deepest nesting that is read; the protocol's own lines have four levels.
inline constexpr int max_depth = 16;

struct Member;

/// A parsed value.
struct Value {
  enum class Kind { Null, Boolean, Number, String, Array, Object };

  Kind kind = Kind::Null;
  bool boolean = false;
  std::string text;            ///< a string's characters in UTF-8, or a number as it is written
  std::vector<Member> members; ///< an object's, or an array's without names

  /// The member of that name; null where there is none, or this is no object.
  const Value *find(std::string_view name) const;
  /// A string's characters.
  std::optional<std::string> as_string() const;
  /// A whole number that fits into an `std::int64_t` or `std::uint64_t`.
  template <class Integer> std::optional<Integer> as_integer() const;
};

struct Member {
  std::string name;
  Value value;
};

/// Read all of `text` as one value, strictly (RFC 8259, valid UTF-8). InvalidArgument: it is none.
Result<Value> parse(std::string_view text);

} // namespace policybridge::json

#endif
