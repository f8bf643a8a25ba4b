#include "json.h"

#include "utf8.h"

#include <algorithm>
#include <charconv>

namespace policybridge::json {

namespace {

/// A recursive descent over the text; each function consumes its part and tells whether it is well-formed.
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

template <class Integer> std::optional<Integer> Value::as_integer() const {
  Integer number = 0;
  const char *end = text.data() + text.size();
  if (kind != Kind::Number)
    return std::nullopt;
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  if (error != std::errc() || stop != end)
    return std::nullopt;
  return number;
}

template std::optional<std::int64_t> Value::as_integer<std::int64_t>() const;
template std::optional<std::uint64_t> Value::as_integer<std::uint64_t>() const;

Result<Value> parse(std::string_view text) {
  Value value;
  if (!Parser(text).whole(value))
    return invalid_argument("not JSON: " + quoted(text));
  return value;
}

} // namespace policybridge::json
