#include "session.h"

#include "json.h"
#include "json_writer.h"
#include "utf8.h"

#include <algorithm>
#include <cstring>

namespace policybridge {

namespace {

void write_labels(JsonWriter &json, std::string_view name, const Labels &labels) {
  json.key(name);
  json.begin_object();
  for (const auto &[label, value] : labels) {
    json.key(label);
    json.string(value);
  }
  json.end_object();
}

std::string hello(const Config &config, const PolicyReference &policy, const Labels &labels) {
  JsonWriter json;
  json.begin_object();
  json.key("policybridge");
  json.integer(1);
  json.key("policy");
  json.string(policy.name);
  if (policy.version) {
    json.key("version");
    json.integer(*policy.version);
  } else if (!policy.alias.empty()) {
    json.key("alias");
    json.string(policy.alias);
  }
  write_labels(json, "options", config.options);
  write_labels(json, "labels", labels);
  json.end_object();
  return json.take() + "\n";
}

Error foreign(std::string_view line) {
  return Error::policy(InvalidArgument, "the server's answer is none of this protocol: '" + printable(line) + "'");
}

/// The error in a line of the server's, nothing where there is none.
Failure error_in(const Json &line) {
  const Json *error = line.field("error", Json::Kind::Object);
  const Json *status = error ? error->field("status", Json::Kind::Number) : nullptr;
  const Json *message = error ? error->field("message", Json::Kind::String) : nullptr;
  if (!status || !message)
    return {};
  return Error::policy(static_cast<int>(status->number), message->text);
}

} // namespace

Result<Session> Session::open(const Config &config, const PolicyReference &policy, const Labels &labels,
                              Patience patience) {
  Result<Wire> wire = Wire::connect(config.socket, patience);
  if (!wire)
    return std::move(wire.error());
  Session session(std::move(*wire));
  if (Failure failure = session.begin(hello(config, policy, labels)))
    return std::move(*failure);
  return session;
}

Failure Session::begin(std::string_view hello) {
  if (Failure failure = wire_.send(hello))
    return failure;
  Result<std::string> line = wire_.receive_line();
  if (!line)
    return std::move(line.error());
  const std::optional<Json> opened = Json::parse(*line);
  if (!opened)
    return foreign(*line);
  if (Failure refused = error_in(*opened))
    return refused;
  const Json *session = opened->field("session", Json::Kind::String);
  const Json *policy = opened->field("policy", Json::Kind::String);
  const Json *version = opened->field("version", Json::Kind::Number);
  const Json *digest = opened->field("digest", Json::Kind::String);
  if (!session || !policy || !version || !digest)
    return foreign(*line);
  id_ = session->text;
  policy_ = {policy->text, static_cast<std::int64_t>(version->number), digest->text};
  return {};
}

Failure Session::evaluate(iovec *pieces, std::size_t count, char *advice, std::size_t size) {
  if (Failure failure = wire_.send(pieces, count))
    return failure;
  reply_.resize(size + 1);
  Result<std::size_t> got = wire_.receive(reply_.data(), reply_.size());
  if (!got)
    return std::move(got.error());
  if (*got == 0 || (reply_[0] == 0 && *got < reply_.size()))
    return wire_.gone();
  if (reply_[0] != 0)
    return failure({reply_.data() + 1, *got - 1});
  std::copy(reply_.begin() + 1, reply_.end(), advice);
  return {};
}

Error Session::failure(std::string_view after_status) {
  std::string line(after_status);
  Result<std::string> rest = wire_.receive_rest();
  if (!rest)
    return std::move(rest.error());
  line += *rest;
  const std::optional<Json> told = Json::parse(line);
  Failure error = told ? error_in(*told) : Failure();
  return error ? std::move(*error) : foreign(line);
}

Failure report(const std::string &path, const std::string &line, Patience patience) {
  Result<Wire> wire = Wire::connect(path, patience);
  if (!wire || wire->send(line))
    return {};
  Result<std::string> answer = wire->receive_line();
  return !answer && answer.error().kind == Error::Kind::Signal ? Failure(std::move(answer.error())) : Failure();
}

} // namespace policybridge
