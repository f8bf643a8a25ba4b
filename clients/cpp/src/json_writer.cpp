#include "json_writer.h"

#include "utf8.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace policybridge {

void JsonWriter::key(std::string_view name) {
  separate();
  quote(name);
  text_ += indented_ ? ": " : ":";
  after_key_ = true;
}

void JsonWriter::string(std::string_view text) {
  separate();
  quote(text);
}

void JsonWriter::strings_member(std::string_view name, const std::vector<std::string> &texts) {
  key(name);
  begin_array();
  for (const std::string &text : texts)
    string(text);
  end_array();
}

void JsonWriter::write(std::string_view value) {
  separate();
  text_ += value;
}

void JsonWriter::begin(char bracket) {
  separate();
  text_ += bracket;
  ++depth_;
  empty_ = true;
}

void JsonWriter::end(char bracket) {
  --depth_;
  if (!empty_)
    new_line();
  text_ += bracket;
  empty_ = false;
}

void JsonWriter::separate() {
  if (std::exchange(after_key_, false)) {
    empty_ = false;
    return;
  }
  if (!std::exchange(empty_, false))
    text_ += ',';
  if (depth_)
    new_line();
}

void JsonWriter::new_line() {
  if (indented_)
    text_.append("\n").append(2 * depth_, ' ');
}

void JsonWriter::quote(std::string_view text) {
  constexpr std::string_view plain = "\"\\\b\f\n\r\t", letters = "\"\\bfnrt", digits = "0123456789abcdef";
  text_ += '"';
  while (!text.empty()) {
    // Names are of such bytes alone.
    const auto is_plain = [](unsigned char byte) { return byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\'; };
    const auto end = static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), is_plain) - text.begin());
    text_ += text.substr(0, end);
    text.remove_prefix(end);
    if (text.empty())
      break;
    const std::size_t length = utf8_length(text);
    const auto first = static_cast<unsigned char>(text.front());
    if (!length)
      append_utf8(text_, 0xfffd);
    else if (const std::size_t place = plain.find(text.front()); place != std::string_view::npos)
      text_.append("\\").append(1, letters[place]);
    else if (first < 0x20)
      text_.append("\\u00").append(1, digits[first >> 4]).append(1, digits[first & 15]);
    else
      text_ += text.substr(0, length);
    text.remove_prefix(length ? length : 1);
  }
  text_ += '"';
}

std::string JsonWriter::decimal(double value) {
  std::array<char, 32> digits;
  std::string text(digits.data(), std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr);
  return text.find_first_not_of("-0123456789") == std::string::npos ? text + ".0" : text;
}

} // namespace policybridge
