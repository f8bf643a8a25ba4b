#include "json.h"

#include "utf8.h"

#include <charconv>
#include <cstdint>

namespace policybridge {

namespace {

constexpr int deepest = 64;

class Parser {
public:
  explicit Parser(std::string_view text) : rest_(text) {}

  bool whole(Json &value) {
    if (!read(value, 0))
      return false;
    skip_space();
    return rest_.empty();
  }

private:
  bool read(Json &value, int depth);
  bool object(Json &value, int depth);
  bool array(Json &value, int depth);
  bool string(std::string &text);
  bool escaped(std::string &text);
  bool code_unit(std::uint32_t &unit);
  bool number(Json &value);

  void skip_space() {
    while (!rest_.empty() && std::string_view(" \t\r\n").find(rest_.front()) != std::string_view::npos)
      rest_.remove_prefix(1);
  }
  bool take(std::string_view word) {
    if (rest_.substr(0, word.size()) != word)
      return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  bool next(std::string_view word) {
    skip_space();
    return take(word);
  }

  std::string_view rest_;
};

bool Parser::read(Json &value, int depth) {
  skip_space();
  if (rest_.empty() || depth > deepest)
    return false;
  if (take("{"))
    return object(value, depth);
  if (take("["))
    return array(value, depth);
  if (take("\"")) {
    value.kind = Json::Kind::String;
    return string(value.text);
  }
  if (take("null"))
    return true;
  if (take("true")) {
    value.kind = Json::Kind::Bool;
    value.number = 1;
    return true;
  }
  if (take("false")) {
    value.kind = Json::Kind::Bool;
    return true;
  }
  return number(value);
}

bool Parser::object(Json &value, int depth) {
  value.kind = Json::Kind::Object;
  if (next("}"))
    return true;
  do {
    auto &[name, field] = value.fields.emplace_back();
    if (!next("\"") || !string(name) || !next(":") || !read(field, depth + 1))
      return false;
  } while (next(","));
  return take("}");
}

bool Parser::array(Json &value, int depth) {
  value.kind = Json::Kind::Array;
  if (next("]"))
    return true;
  do {
    if (!read(value.items.emplace_back(), depth + 1))
      return false;
  } while (next(","));
  return take("]");
}

bool Parser::string(std::string &text) {
  while (!rest_.empty()) {
    const char letter = rest_.front();
    rest_.remove_prefix(1);
    if (letter == '"')
      return true;
    if (static_cast<unsigned char>(letter) < 0x20)
      return false;
    if (letter != '\\')
      text += letter;
    else if (!escaped(text))
      return false;
  }
  return false;
}

bool Parser::escaped(std::string &text) {
  if (rest_.empty())
    return false;
  const char letter = rest_.front();
  rest_.remove_prefix(1);
  constexpr std::string_view from = "\"\\/bfnrt", to = "\"\\/\b\f\n\r\t";
  if (const std::size_t place = from.find(letter); place != std::string_view::npos) {
    text += to[place];
    return true;
  }
  std::uint32_t unit = 0, low = 0;
  if (letter != 'u' || !code_unit(unit))
    return false;
  if (unit >= 0xd800 && unit < 0xdc00) {
    if (!take("\\u") || !code_unit(low) || low < 0xdc00 || low > 0xdfff)
      return false;
    unit = 0x10000 + ((unit - 0xd800) << 10) + (low - 0xdc00);
  } else if (unit >= 0xdc00 && unit < 0xe000) {
    return false;
  }
  append_utf8(text, unit);
  return true;
}

bool Parser::code_unit(std::uint32_t &unit) {
  const char *end = rest_.data() + 4;
  if (rest_.size() < 4 || std::from_chars(rest_.data(), end, unit, 16).ptr != end)
    return false;
  rest_.remove_prefix(4);
  return true;
}

bool Parser::number(Json &value) {
  value.kind = Json::Kind::Number;
  const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value.number);
  const bool starts = rest_.front() == '-' || (rest_.front() >= '0' && rest_.front() <= '9');
  rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
  return error == std::errc() && starts;
}

} // namespace

const Json *Json::field(std::string_view name, Kind wanted) const {
  for (const auto &[called, value] : fields)
    if (called == name)
      return value.kind == wanted ? &value : nullptr;
  return nullptr;
}

std::optional<Json> Json::parse(std::string_view text) {
  Json value;
  if (!is_utf8(text) || !Parser(text).whole(value))
    return {};
  return value;
}

} // namespace policybridge
