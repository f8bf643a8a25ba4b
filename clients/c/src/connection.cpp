#include "handles.h"

#include <cmath>

using namespace policybridge;
using namespace policybridge::c;

namespace {

/// Seconds as a time-out: NaN and negative numbers become 0, which `connect` refuses; more than a year becomes a year.
std::chrono::microseconds time_of(double seconds) {
  constexpr double year = 365.0 * 86400;
  return std::chrono::microseconds(std::isnan(seconds) ? 0 : std::llround(std::clamp(seconds, 0.0, year) * 1e6));
}

Result<ConnectOptions> options_of(const pb_connect_options &given) {
  ConnectOptions options;
  options.timeout = time_of(given.timeout);
  const auto text = [](const char *value) { return std::string(value ? value : ""); };
  options.onnxruntime = text(given.onnxruntime);
  options.credentials = {text(given.tls_ca), text(given.tls_certificate), text(given.tls_key), text(given.token_file)};
  if (given.scheme_count && !given.schemes)
    return invalid_argument("the schemes of a connection are NULL");
  for (size_t n = 0; n < given.scheme_count; ++n) {
    if (!given.schemes[n])
      return invalid_argument("a scheme of a connection is NULL");
    options.schemes.push_back(given.schemes[n]->scheme);
  }
  return options;
}

} // namespace

pb_status pb_connect(const char *address, const pb_connect_options *options, pb_connection **connection,
                     pb_error *error) {
  if (!address || !connection)
    return null_error("an address, or where to put the connection,", error);
  return at_edge(error, [&]() -> Status {
    const pb_connect_options defaults = PB_CONNECT_OPTIONS;
    const Result<ConnectOptions> connect_options = options_of(options ? *options : defaults);
    if (!connect_options.ok())
      return connect_options.status();
    Result<std::shared_ptr<Connection>> made = connect(address, *connect_options);
    if (!made.ok())
      return made.status();
    *connection = new pb_connection{std::move(*made)};
    return {};
  });
}

pb_status pb_connection_check(pb_connection *connection, pb_error *error) {
  if (!connection)
    return null_error("a connection", error);
  return at_edge(error, [&] { return connection->connection->check(); });
}

pb_status pb_connection_report(pb_connection *connection, const char *session_id, const char *status,
                               const pb_value *values, size_t count, pb_error *error) {
  if (!connection || !session_id)
    return null_error("a connection or a session's id", error);
  return at_edge(error, [&]() -> Status {
    const Result<Outcome> outcome = outcome_of(status, values, count);
    return outcome.ok() ? connection->connection->report_outcome(session_id, *outcome) : outcome.status();
  });
}

void pb_connection_free(pb_connection *connection) { delete connection; }
