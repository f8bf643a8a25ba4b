#include "utf8.h"

namespace policybridge {

void append_utf8(std::string &text, std::uint32_t point) {
  const auto put = [&text](std::uint32_t byte) { text += static_cast<char>(static_cast<unsigned char>(byte)); };
  if (point < 0x80)
    return put(point);
  const int more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
  put((0xf00u >> (more + 1) & 0xf0u) | point >> 6 * more);
  for (int shift = 6 * (more - 1); shift >= 0; shift -= 6)
    put(0x80 | (point >> shift & 0x3f));
}

std::size_t utf8_length(std::string_view text) {
  const auto byte = [&text](std::size_t n) { return n < text.size() ? static_cast<unsigned char>(text[n]) : 0u; };
  const unsigned first = byte(0);
  if (text.empty() || first < 0x80)
    return text.empty() ? 0 : 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  std::uint32_t point = first & (0xffu >> (length + 1));
  for (std::size_t n = 1; n < length; ++n) {
    if ((byte(n) & 0xc0) != 0x80)
      return 0;
    point = point << 6 | (byte(n) & 0x3f);
  }
  constexpr std::uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = point >= 0xd800 && point < 0xe000;
  return first < 0xc2 || first > 0xf4 || point < smallest[length] || point > 0x10ffff || surrogate ? 0 : length;
}

std::string printable(std::string_view text) {
  constexpr std::size_t longest = 60;
  std::string shown;
  while (!text.empty() && shown.size() < longest) {
    const std::size_t length = utf8_length(text);
    const bool control = length == 1 && (static_cast<unsigned char>(text.front()) < 0x20 || text.front() == 0x7f);
    shown += length && !control ? text.substr(0, length) : "?";
    text.remove_prefix(length ? length : 1);
  }
  return shown;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (!length)
      return false;
    text.remove_prefix(length);
  }
  return true;
}

} // namespace policybridge
