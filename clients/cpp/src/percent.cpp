#include "percent.h"

namespace policybridge {

namespace {

constexpr char hexadecimal[] = "0123456789ABCDEF";

/// The value of a hexadecimal digit; -1 for any other character.
int value_of(char digit) {
  if (digit >= '0' && digit <= '9')
    return digit - '0';
  const char small = static_cast<char>(digit | 0x20);
  return small >= 'a' && small <= 'f' ? small - 'a' + 10 : -1;
}

} // namespace

std::string percent_encoded(std::string_view text) {
  std::string encoded;
  encoded.reserve(text.size());
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte <= 0x20 || byte == 0x7f || c == '%')
      encoded.append({'%', hexadecimal[byte >> 4], hexadecimal[byte & 15]});
    else
      encoded += c;
  }
  return encoded;
}

std::string percent_decoded(std::string_view text) {
  std::string decoded;
  decoded.reserve(text.size());
  for (std::size_t at = 0; at < text.size(); ++at) {
    const int high = text[at] == '%' && at + 2 < text.size() ? value_of(text[at + 1]) : -1;
    const int low = high >= 0 ? value_of(text[at + 2]) : -1;
    decoded += low < 0 ? text[at] : static_cast<char>(high << 4 | low);
    at += low < 0 ? 0 : 2;
  }
  return decoded;
}

} // namespace policybridge
