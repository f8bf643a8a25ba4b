#pragma once

#include <string>
#include <vector>

namespace policybridge {

/// The words of a command line, or a part of them.
using Strings = std::vector<std::string>;

} // namespace policybridge
