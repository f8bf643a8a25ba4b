#ifndef POLICYBRIDGE_SRC_JSON_WRITER_H
#define POLICYBRIDGE_SRC_JSON_WRITER_H

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace policybridge {

/// Writes JSON on one line, as the protocol requires, or indented by two spaces a level, for people to read.
/// Bytes that are not UTF-8 are written as U+FFFD.
class JsonWriter {
public:
  explicit JsonWriter(bool indented = false) : indented_(indented) {}

  void begin_object() { begin('{'); }
  void end_object() { end('}'); }
  void begin_array() { begin('['); }
  void end_array() { end(']'); }
  void key(std::string_view name);
  void string(std::string_view text);
  template <class Integer> void integer(Integer number) { write(std::to_string(number)); }
  /// A finite number: reading it gives the same double. It always has a point or an exponent, as Python writes a float.
  void number(double value) { write(decimal(value)); }
  void boolean(bool value) { write(value ? "true" : "false"); }
  void null() { write("null"); }

  /// @name A member of an object: its name and its value.
  /// @{
  void member(std::string_view name, std::string_view text) { key(name), string(text); }
  template <class Integer> void integer_member(std::string_view name, Integer value) { key(name), integer(value); }
  void number_member(std::string_view name, double value) { key(name), number(value); }
  void strings_member(std::string_view name, const std::vector<std::string> &texts);
  /// @}

  std::string take() { return std::move(text_); }

  /// The shortest decimal that reads back as the same double: `10.0`, `0.1`, `1e+300`.
  static std::string decimal(double value);

private:
  void begin(char bracket);
  void end(char bracket);
  void write(std::string_view value);
  void separate();
  void new_line();
  void quote(std::string_view text);

  bool indented_;
  bool empty_ = true;
  bool after_key_ = false;
  std::size_t depth_ = 0;
  std::string text_;
};

} // namespace policybridge

#endif
