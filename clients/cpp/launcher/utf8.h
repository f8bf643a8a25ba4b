#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace policybridge {

/// Appends a code point.
void append_utf8(std::string &text, std::uint32_t point);

/// How many bytes the code point at the beginning takes; 0 where there is none.
std::size_t utf8_length(std::string_view text);

/// The beginning of what somebody sent, fit to be shown in a message.
std::string printable(std::string_view text);

/// Whether all of it is UTF-8.
bool is_utf8(std::string_view text);

} // namespace policybridge
