#pragma once

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace policybridge {

inline bool starts_with(std::string_view text, std::string_view beginning) {
  return text.substr(0, beginning.size()) == beginning;
}

template <class Words> bool holds(const Words &words, std::string_view word) {
  return std::find(std::begin(words), std::end(words), word) != std::end(words);
}

/// The parts of a list such as PATH, with colons between them; an empty part is kept.
inline std::vector<std::string> split_at_colons(std::string_view list) {
  std::vector<std::string> parts;
  for (std::size_t start = 0, end = 0; end != std::string_view::npos; start = end + 1) {
    end = list.find(':', start);
    parts.emplace_back(list.substr(start, end - start));
  }
  return parts;
}

} // namespace policybridge
