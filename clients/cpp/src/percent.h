#ifndef POLICYBRIDGE_SRC_PERCENT_H
#define POLICYBRIDGE_SRC_PERCENT_H

#include <string>
#include <string_view>

namespace policybridge {

/// Bytes up to a space, the byte 0x7f and '%' as %XX, so that the text is one word of one line.
std::string percent_encoded(std::string_view text);

/// The opposite. A '%' without two hexadecimal digits behind it stands for itself.
std::string percent_decoded(std::string_view text);

} // namespace policybridge

#endif
