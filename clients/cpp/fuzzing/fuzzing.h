#pragma once

#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace policybridge {

/// End the fuzzer where the code under test broke a promise.
inline void promise(bool kept, const char *what) {
  if (kept)
    return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

/// The first byte of an input, which is dropped from it; 0 of an empty one.
inline unsigned char take_byte(std::string_view &data) {
  if (data.empty())
    return 0;
  const auto first = static_cast<unsigned char>(data.front());
  data.remove_prefix(1);
  return first;
}

/// The next piece of an input: it begins with its length, one byte.
inline std::string_view take_piece(std::string_view &data) {
  const std::size_t size = take_byte(data);
  const std::string_view piece = data.substr(0, size);
  data.remove_prefix(piece.size());
  return piece;
}

} // namespace policybridge
