#include "utf8.h"

#include <algorithm>

namespace policybridge {

void append_utf8(std::string &to, std::uint32_t point) {
  const auto put = [&to](std::uint32_t byte) { to += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (point < 0x80)
    return put(point);
  const int more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
  put((0xf00u >> (more + 1) & 0xf0u) | point >> 6 * more);
  for (int shift = 6 * (more - 1); shift >= 0; shift -= 6)
    put(0x80 | (point >> shift & 0x3f));
}

std::size_t utf8_length(std::string_view text) noexcept {
  const auto byte = [&text](std::size_t n) { return static_cast<unsigned char>(text[n]); };
  if (text.empty())
    return 0;
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

bool is_utf8(std::string_view text) noexcept {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (!length)
      return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string valid_utf8(std::string_view text) {
  std::string valid;
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    valid.append(length ? text.substr(0, length) : "\xef\xbf\xbd");
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return valid;
}

std::string one_line(std::string_view text) {
  constexpr std::size_t longest = 4000;
  std::string line = valid_utf8(text.substr(0, longest));
  if (text.size() > longest)
    line += "\xe2\x80\xa6";
  for (std::size_t at = 0; at < line.size(); ++at) {
    const auto byte = static_cast<unsigned char>(line[at]);
    if (byte < ' ' || byte == 0x7f)
      line[at] = ' ';
    else if (byte == 0xc2 && static_cast<unsigned char>(line[at + 1]) < 0xa0)
      line.replace(at, 2, " ");
  }
  return line;
}

std::string quoted(std::string_view bytes) {
  constexpr char digits[] = "0123456789abcdef";
  constexpr std::size_t longest = 60;
  std::string text = "'";
  for (const char next : bytes.substr(0, longest)) {
    const auto byte = static_cast<unsigned char>(next);
    if (byte >= 0x20 && byte < 0x7F)
      text += next;
    else
      text.append("\\x").append(1, digits[byte >> 4]).append(1, digits[byte & 15]);
  }
  return text + "'";
}

} // namespace policybridge
