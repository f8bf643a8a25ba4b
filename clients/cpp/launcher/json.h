#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace policybridge {

/// A JSON value as it was read. Only what LLVM's header and the server's lines hold is of interest.
struct Json {
  enum class Kind { Null, Bool, Number, String, Array, Object };

  Kind kind = Kind::Null;
  double number = 0;
  std::string text;
  std::vector<Json> items;
  std::vector<std::pair<std::string, Json>> fields;

  /// The field of an object; nullptr where it is no object, has none, or one of another kind.
  const Json *field(std::string_view name, Kind wanted) const;

  /// Reads one value with nothing behind it but white space; nothing where it is malformed.
  static std::optional<Json> parse(std::string_view text);
};

} // namespace policybridge
