#include "handles.h"

#include <cstring>

namespace policybridge::c {

namespace {

/// Where to cut a message so that at most `size` bytes remain, and no UTF-8 character is split.
std::size_t cut(std::string_view message, std::size_t size) noexcept {
  if (message.size() <= size)
    return message.size();
  while (size && (static_cast<unsigned char>(message[size]) & 0xC0) == 0x80)
    --size;
  return size;
}

pb_status told_text(StatusCode code, std::string_view message, pb_error *error) noexcept {
  if (error && code != StatusCode::Ok) {
    const std::size_t size = cut(message, sizeof error->message - 1);
    error->status = static_cast<pb_status>(code);
    std::memcpy(error->message, message.data(), size);
    error->message[size] = '\0';
  }
  return static_cast<pb_status>(code);
}

} // namespace

pb_status to_c(const Status &status, pb_error *error) noexcept {
  return told_text(status.code(), status.message(), error);
}

pb_status to_c(StatusCode code, const char *message, pb_error *error) noexcept {
  return told_text(code, message, error);
}

pb_status null_error(const char *what, pb_error *error) noexcept {
  return at_edge(error, [what] { return invalid_argument(std::string(what) + " is NULL"); });
}

Result<std::vector<std::int64_t>> shape_of(const int64_t *shape, size_t rank) {
  if (rank && !shape)
    return invalid_argument("a shape of " + std::to_string(rank) + " dimensions is NULL");
  return rank ? std::vector<std::int64_t>(shape, shape + rank) : std::vector<std::int64_t>();
}

Result<Outcome> outcome_of(const char *status, const pb_value *values, size_t count) {
  if (count && !values)
    return invalid_argument("the values of an outcome are NULL");
  Outcome outcome;
  outcome.status = status ? status : "";
  for (size_t n = 0; n < count; ++n) {
    if (!values[n].name)
      return invalid_argument("the name of an outcome's value is NULL");
    outcome.values[values[n].name] = values[n].value;
  }
  if (Status checked = outcome.check(); !checked.ok())
    return checked;
  return outcome;
}

} // namespace policybridge::c

const char *pb_status_name(pb_status status) {
  return policybridge::to_string(policybridge::status_code_from(static_cast<int>(status)));
}
