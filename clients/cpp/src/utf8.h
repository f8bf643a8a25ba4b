#ifndef POLICYBRIDGE_SRC_UTF8_H
#define POLICYBRIDGE_SRC_UTF8_H

#include <cstdint>
#include <string>
#include <string_view>

namespace policybridge {

/// Append a code point in UTF-8.
void append_utf8(std::string &to, std::uint32_t point);

/// Length in bytes of the first code point in `text`; 0 if it is not valid UTF-8 (a surrogate, an overlong form, a
/// truncated sequence), or if `text` is empty.
std::size_t utf8_length(std::string_view text) noexcept;

/// Whether all of `text` is valid UTF-8.
bool is_utf8(std::string_view text) noexcept;

/// The text, with U+FFFD in place of each byte that is part of no code point.
std::string valid_utf8(std::string_view text);

/// The text for one line of a terminal: as `valid_utf8`, with a space in place of each control character, and cut behind
/// 4,000 bytes.
std::string one_line(std::string_view text);

/// The first 60 bytes of a peer's data in quotes, for an error message; all but printable ASCII is escaped.
std::string quoted(std::string_view bytes);

} // namespace policybridge

#endif
