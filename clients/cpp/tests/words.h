#ifndef POLICYBRIDGE_TESTS_WORDS_H
#define POLICYBRIDGE_TESTS_WORDS_H

/// The words of a conformance program's lines: separated by single spaces; a text is ':' and percent-encoded bytes.

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

inline std::vector<std::string> split(std::string_view line, char separator = ' ') {
  std::vector<std::string> words;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(separator), line.size());
    words.emplace_back(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return words;
}

inline std::string decode_text(std::string_view word) {
  std::string text;
  for (std::size_t n = 1; n < word.size(); ++n) {
    if (word[n] != '%') {
      text += word[n];
      continue;
    }
    unsigned byte = 0;
    std::from_chars(word.data() + n + 1, word.data() + n + 3, byte, 16);
    text += static_cast<char>(byte);
    n += 2;
  }
  return text;
}

inline std::string encode_text(std::string_view text) {
  constexpr char digits[] = "0123456789ABCDEF";
  std::string word = ":";
  for (char next : text) {
    const auto byte = static_cast<unsigned char>(next);
    word += '%';
    word += digits[byte >> 4];
    word += digits[byte & 15];
  }
  return word;
}

/// Dimensions "2,-1", or "-" for a scalar.
inline std::vector<std::int64_t> parse_shape(std::string_view word) {
  std::vector<std::int64_t> shape;
  if (word == "-")
    return shape;
  for (const std::string &dimension : split(word, ','))
    shape.push_back(std::stoll(dimension));
  return shape;
}

#endif
