#include "protocol.h"

#include "json.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>

namespace policybridge::protocol {

namespace {

using json::append_number;
using json::append_string;

void append_object(std::string &to, const std::map<std::string, std::string> &texts) {
  to += '{';
  const char *comma = "";
  for (const auto &[name, value] : texts) {
    to += comma;
    append_string(to, name);
    to += ':';
    append_string(to, value);
    comma = ",";
  }
  to += '}';
}

void append_spec(std::string &to, const TensorSpec &spec) {
  to += "{\"name\":";
  append_string(to, spec.name);
  to += ",\"type\":";
  append_string(to, to_string(spec.type));
  to += ",\"port\":0,\"shape\":[";
  for (std::size_t n = 0; n < spec.shape.size(); ++n) {
    to += n ? "," : "";
    append_number(to, spec.shape[n]);
  }
  to += "]}";
}

void append_outcome(std::string &to, const Outcome &outcome) {
  to += "\"outcome\":{\"values\":{";
  const char *comma = "";
  for (const auto &[name, value] : outcome.values) {
    to += comma;
    append_string(to, name);
    to += ':';
    append_number(to, value);
    comma = ",";
  }
  to += "},\"status\":";
  append_string(to, outcome.status);
  to += '}';
}

void append_exploration(std::string &to, const Exploration &asked) {
  to += ",\"framing\":\"chance\",\"exploration\":{\"seed\":";
  append_number(to, asked.seed);
  to += ",\"temperature\":";
  append_number(to, asked.temperature);
  to += ",\"epsilon\":";
  append_number(to, asked.epsilon);
  to += '}';
}

Status none_of_this(std::string_view line) {
  return invalid_argument("the server's answer is none of this protocol: " + json::shown(line));
}

/// The status in an `error` object; InvalidArgument where it is none.
Status status_of(const json::Value &error, std::string_view line) {
  const json::Value *number = error.find("status");
  const json::Value *message = error.find("message");
  const auto code = number ? number->as_uint() : std::nullopt;
  const auto text = message ? message->as_string() : std::nullopt;
  if (!code || !text || *code == 0)
    return none_of_this(line);
  const auto known = std::min<std::uint64_t>(*code, std::numeric_limits<int>::max());
  return {status_code_from(static_cast<int>(known)), *text};
}

/// Parse an answer; the error that it carries is the result.
Result<json::Value> parse_answer(std::string_view line) {
  Result<json::Value> answer = json::parse(line);
  if (!answer.ok() || answer->kind != json::Value::Kind::Object)
    return none_of_this(line);
  if (const json::Value *error = answer->find("error"))
    return status_of(*error, line);
  return answer;
}

std::string text_in(const json::Value &object, std::string_view name) {
  const json::Value *value = object.find(name);
  return value ? value->as_string().value_or("") : "";
}

} // namespace

std::string hello_line(const OpenOptions &options) {
  std::string line = "{\"policybridge\":1,\"policy\":";
  append_string(line, options.policy.name);
  if (options.policy.version) {
    line += ",\"version\":";
    append_number(line, *options.policy.version);
  }
  if (options.policy.alias) {
    line += ",\"alias\":";
    append_string(line, *options.policy.alias);
  }
  line += ",\"options\":";
  append_object(line, options.options);
  line += ",\"labels\":";
  append_object(line, options.labels);
  if (options.exploration)
    append_exploration(line, *options.exploration);
  return line + "}\n";
}

std::string header_line(const Signature &signature) {
  std::string line = "{\"features\":[";
  for (std::size_t n = 0; n < signature.features.size(); ++n) {
    line += n ? "," : "";
    append_spec(line, signature.features[n]);
  }
  line += "],\"advice\":";
  append_spec(line, signature.advice);
  return line + "}\n";
}

std::string context_line(std::string_view name) {
  std::string line = "{\"context\":";
  append_string(line, name);
  return line + "}\n";
}

std::string outcome_line(const Outcome &outcome) {
  std::string line = "{";
  append_outcome(line, outcome);
  return line + "}\n";
}

std::string report_line(std::string_view session_id, const Outcome &outcome) {
  std::string line = "{\"policybridge\":1,\"report\":";
  append_string(line, session_id);
  line += ',';
  append_outcome(line, outcome);
  return line + "}\n";
}

ObservationLine::ObservationLine(std::uint64_t number) {
  put("{\"observation\":");
  put(number);
  put("}\n");
}

ObservationLine::ObservationLine(std::uint64_t number, std::uint64_t bytes) {
  put("{\"observation\":");
  put(number);
  put(",\"bytes\":");
  put(bytes);
  put("}\n");
}

void ObservationLine::put(std::string_view text) {
  std::memcpy(text_.data() + size_, text.data(), text.size());
  size_ += text.size();
}

void ObservationLine::put(std::uint64_t number) {
  const auto result = std::to_chars(text_.data() + size_, text_.data() + text_.size(), number);
  size_ = static_cast<std::size_t>(result.ptr - text_.data());
}

Result<SessionInfo> parse_opened(std::string_view line) {
  Result<json::Value> answer = parse_answer(line);
  if (!answer.ok())
    return answer.status();
  const json::Value *number = answer->find("version");
  const auto version = number ? number->as_uint() : std::nullopt;
  SessionInfo info{text_in(*answer, "session"), {text_in(*answer, "policy"), 0, text_in(*answer, "digest")}};
  if (!version || info.id.empty() || info.policy.name.empty())
    return none_of_this(line);
  info.policy.version = *version;
  return info;
}

Status parse_recorded(std::string_view line) {
  Result<json::Value> answer = parse_answer(line);
  if (!answer.ok())
    return answer.status();
  const json::Value *recorded = answer->find("recorded");
  return recorded && recorded->boolean ? Status() : none_of_this(line);
}

Status parse_failure(std::string_view line) {
  Result<json::Value> answer = parse_answer(line);
  return answer.ok() ? none_of_this(line) : answer.status();
}

} // namespace policybridge::protocol
