#include "json.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace policybridge::json {

namespace {

constexpr char hexadecimal[] = "0123456789abcdef";

void append_utf8(std::string &to, std::uint32_t point) {
  const auto put = [&to](std::uint32_t byte) { to += static_cast<char>(byte); };
  if (point < 0x80) {
    put(point);
  } else if (point < 0x800) {
    put(0xC0 | point >> 6);
    put(0x80 | (point & 0x3F));
  } else if (point < 0x10000) {
    put(0xE0 | point >> 12);
    put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  } else {
    put(0xF0 | point >> 18);
    put(0x80 | (point >> 12 & 0x3F));
    put(0x80 | (point >> 6 & 0x3F));
    put(0x80 | (point & 0x3F));
  }
}

/// A recursive descent over the text; each function consumes what it reads and says whether it was right.
class Parser {
public:
  explicit Parser(std::string_view text) : text_(text) {}

  bool whole(Value &value) {
    skip_space();
    if (!read(value, 0))
      return false;
    skip_space();
    return text_.empty();
  }

private:
  bool take(char wanted) {
    if (text_.empty() || text_.front() != wanted)
      return false;
    text_.remove_prefix(1);
    return true;
  }

  bool take(std::string_view word) {
    if (text_.substr(0, word.size()) != word)
      return false;
    text_.remove_prefix(word.size());
    return true;
  }

  void skip_space() {
    while (!text_.empty() && (text_[0] == ' ' || text_[0] == '\t' || text_[0] == '\n' || text_[0] == '\r'))
      text_.remove_prefix(1);
  }

  bool read(Value &value, int depth) {
    if (text_.empty() || depth > max_depth)
      return false;
    switch (text_.front()) {
    case '{':
      return read_members(value, Value::Kind::Object, '}', depth);
    case '[':
      return read_members(value, Value::Kind::Array, ']', depth);
    case '"':
      value.kind = Value::Kind::String;
      return read_string(value.text);
    case 't':
    case 'f':
      value.kind = Value::Kind::Boolean;
      value.boolean = text_.front() == 't';
      return take(value.boolean ? "true" : "false");
    case 'n':
      return take("null");
    default:
      value.kind = Value::Kind::Number;
      return read_number(value.text);
    }
  }

  bool read_members(Value &value, Value::Kind kind, char end, int depth) {
    value.kind = kind;
    text_.remove_prefix(1);
    skip_space();
    if (take(end))
      return true;
    do {
      Member &member = value.members.emplace_back();
      skip_space();
      if (kind == Value::Kind::Object && !read_name(member.name))
        return false;
      skip_space();
      if (!read(member.value, depth + 1))
        return false;
      skip_space();
    } while (take(','));
    return take(end);
  }

  bool read_name(std::string &name) {
    if (!read_string(name))
      return false;
    skip_space();
    return take(':');
  }

  bool read_string(std::string &to) {
    if (!take('"'))
      return false;
    while (!text_.empty()) {
      const char next = text_.front();
      text_.remove_prefix(1);
      if (next == '"')
        return is_utf8(to);
      if (static_cast<unsigned char>(next) < 0x20 || (next == '\\' && !read_escape(to)))
        return false;
      if (next != '\\')
        to += next;
    }
    return false;
  }

  bool read_escape(std::string &to) {
    constexpr std::string_view from = "\"\\/bfnrt";
    constexpr std::string_view meant = "\"\\/\b\f\n\r\t";
    if (text_.empty())
      return false;
    const char next = text_.front();
    text_.remove_prefix(1);
    if (next == 'u')
      return read_point(to);
    const std::size_t which = from.find(next);
    if (which == std::string_view::npos)
      return false;
    to += meant[which];
    return true;
  }

  bool read_point(std::string &to) {
    std::uint32_t point = 0;
    if (!read_unit(point))
      return false;
    if (point >= 0xD800 && point < 0xDC00) {
      std::uint32_t low = 0;
      if (!take("\\u") || !read_unit(low) || low < 0xDC00 || low > 0xDFFF)
        return false;
      point = 0x10000 + ((point - 0xD800) << 10) + (low - 0xDC00);
    }
    append_utf8(to, point); // a lone low surrogate is caught as no UTF-8
    return true;
  }

  bool read_unit(std::uint32_t &unit) {
    const char *end = text_.data() + std::min<std::size_t>(4, text_.size());
    const auto [stop, error] = std::from_chars(text_.data(), end, unit, 16);
    if (error != std::errc() || stop - text_.data() != 4)
      return false;
    text_.remove_prefix(4);
    return true;
  }

  bool read_number(std::string &to) {
    const std::string_view before = text_;
    take('-');
    if (!take('0') && !digits())
      return false;
    if (take('.') && !digits())
      return false;
    if (take('e') || take('E')) {
      if (!take('+'))
        take('-');
      if (!digits())
        return false;
    }
    to = before.substr(0, before.size() - text_.size());
    return true;
  }

  bool digits() {
    const std::size_t before = text_.size();
    while (!text_.empty() && text_.front() >= '0' && text_.front() <= '9')
      text_.remove_prefix(1);
    return text_.size() < before;
  }

  std::string_view text_;
};

template <class Number> void append_any(std::string &to, Number number) {
  std::array<char, 32> buffer;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), number);
  to.append(buffer.data(), result.ptr);
}

/// Length of the UTF-8 sequence that `text` begins with; 0 where it is none.
std::size_t sequence(std::string_view text) noexcept {
  const auto byte = [&text](std::size_t n) { return static_cast<unsigned char>(text[n]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80)
    return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length)
    return 0;
  for (std::size_t n = 1; n < length; ++n)
    if ((byte(n) & 0xC0) != 0x80)
      return 0;
  const bool overlong = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xF0 && byte(1) < 0x90);
  const bool surrogate = lead == 0xED && byte(1) > 0x9F;
  const bool beyond = lead == 0xF4 && byte(1) > 0x8F;
  return overlong || surrogate || beyond ? 0 : length;
}

} // namespace

const Value *Value::find(std::string_view name) const {
  if (kind != Kind::Object)
    return nullptr;
  for (const Member &member : members)
    if (member.name == name)
      return &member.value;
  return nullptr;
}

std::optional<std::string> Value::as_string() const {
  if (kind != Kind::String)
    return std::nullopt;
  return text;
}

std::optional<std::uint64_t> Value::as_uint() const {
  std::uint64_t number = 0;
  const char *end = text.data() + text.size();
  if (kind != Kind::Number || text.front() == '-')
    return std::nullopt;
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end)
    return std::nullopt;
  return number;
}

Result<Value> parse(std::string_view text) {
  Value value;
  if (!Parser(text).whole(value))
    return invalid_argument("not JSON: " + shown(text));
  return value;
}

void append_string(std::string &to, std::string_view text) {
  to += '"';
  for (char next : text) {
    if (next == '"' || next == '\\') {
      to += '\\';
      to += next;
    } else if (static_cast<unsigned char>(next) < 0x20) {
      to += "\\u00";
      to += hexadecimal[next >> 4];
      to += hexadecimal[next & 15];
    } else {
      to += next;
    }
  }
  to += '"';
}

void append_number(std::string &to, double number) { append_any(to, number); }
void append_number(std::string &to, std::uint64_t number) { append_any(to, number); }
void append_number(std::string &to, std::int64_t number) { append_any(to, number); }

bool is_utf8(std::string_view text) noexcept {
  while (!text.empty()) {
    const std::size_t length = sequence(text);
    if (!length)
      return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string shown(std::string_view bytes) {
  std::string text = "'";
  for (char next : bytes.substr(0, 60)) {
    const auto byte = static_cast<unsigned char>(next);
    if (byte >= 0x20 && byte < 0x7F) {
      text += next;
    } else {
      text += "\\x";
      text += hexadecimal[byte >> 4];
      text += hexadecimal[byte & 15];
    }
  }
  return text + "'";
}

} // namespace policybridge::json
