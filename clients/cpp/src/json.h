#ifndef POLICYBRIDGE_SRC_JSON_H
#define POLICYBRIDGE_SRC_JSON_H

#include "policybridge/status.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// JSON as far as the few lines of the protocol need it, so that the library depends on libc alone.
namespace policybridge::json {

/// Deepest nesting that is read; the protocol's own lines have two levels.
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
  /// A whole number that is not negative.
  std::optional<std::uint64_t> as_uint() const;
};

struct Member {
  std::string name;
  Value value;
};

/// Read all of `text` as one value, strictly (RFC 8259, valid UTF-8). InvalidArgument: it is none.
Result<Value> parse(std::string_view text);

/// Append a string in quotes; `text` is UTF-8.
void append_string(std::string &to, std::string_view text);
/// Append a number so that it is read back as the same; `number` is finite.
void append_number(std::string &to, double number);
void append_number(std::string &to, std::uint64_t number);
void append_number(std::string &to, std::int64_t number);

/// Whether `text` is valid UTF-8 (no surrogates, no overlong forms).
bool is_utf8(std::string_view text) noexcept;

/// The beginning of bytes from elsewhere, fit for a message: in quotes, what is not printable ASCII escaped.
std::string shown(std::string_view bytes);

} // namespace policybridge::json

#endif
