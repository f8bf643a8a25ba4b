#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace policybridge {

/// Writes JSON, on one line or indented by two spaces a level as `policybridge run` writes its statistics.
/// Bytes that are no UTF-8 are written as U+FFFD.
class JsonWriter {
public:
  explicit JsonWriter(bool indented = false) : indented_(indented) {}

  void begin_object() { begin('{'); }
  void end_object() { end('}'); }
  void begin_array() { begin('['); }
  void end_array() { end(']'); }
  void key(std::string_view name);
  void string(std::string_view text);
  void integer(std::int64_t number);
  /// A finite number; always with a point or an exponent, as Python writes a float.
  void number(double value);
  void boolean(bool value);
  void null();
  /// An array of strings.
  void strings(const std::vector<std::string> &texts);

  std::string take() { return std::move(text_); }

private:
  void begin(char bracket);
  void end(char bracket);
  void separate();
  void new_line();
  void quote(std::string_view text);

  bool indented_;
  bool empty_ = true;
  bool after_key_ = false;
  std::size_t depth_ = 0;
  std::string text_;
};

/// A number as Python shows a float: the fewest digits that give it back, `10.0` and not `10`.
std::string shown(double value);

} // namespace policybridge
