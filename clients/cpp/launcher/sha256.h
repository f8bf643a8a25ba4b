#pragma once

#include <string>
#include <string_view>

namespace policybridge {

/// The SHA-256 of bytes (FIPS 180-4), in 64 hexadecimal digits.
std::string sha256(std::string_view bytes);

} // namespace policybridge
