#include "policybridge/status.h"

#include <array>

namespace policybridge {

static constexpr std::array<const char *, 17> names = {
    "OK",        "CANCELLED",       "UNKNOWN",           "INVALID_ARGUMENT",   "DEADLINE_EXCEEDED",
    "NOT_FOUND", "ALREADY_EXISTS",  "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION",
    "ABORTED",   "OUT_OF_RANGE",    "UNIMPLEMENTED",     "INTERNAL",           "UNAVAILABLE",
    "DATA_LOSS", "UNAUTHENTICATED",
};

const char *to_string(StatusCode code) noexcept { return names[static_cast<std::size_t>(status_code_from(int(code)))]; }

StatusCode status_code_from(int number) noexcept {
  return number >= 0 && number < static_cast<int>(names.size()) ? static_cast<StatusCode>(number) : StatusCode::Unknown;
}

} // namespace policybridge
