#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace policybridge {

/// The SHA-256 of bytes (FIPS 180-4), in 64 hexadecimal digits.
std::string sha256(std::string_view bytes);

/// Its first 8 bytes as a number, the first one the highest: in 16 hexadecimal digits, how `sha256` begins.
std::uint64_t sha256_head(std::string_view bytes);

} // namespace policybridge
