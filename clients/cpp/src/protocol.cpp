#include "protocol.h"

#include "json.h"
#include "json_writer.h"
#include "utf8.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <limits>

namespace policybridge::protocol {

namespace {

void write_texts(JsonWriter &json, std::string_view name, const std::map<std::string, std::string> &texts) {
  json.key(name);
  json.begin_object();
  for (const auto &[key, value] : texts)
    json.member(key, value);
  json.end_object();
}

void write_spec(JsonWriter &json, const TensorSpec &spec) {
  json.begin_object();
  json.member("name", spec.name);
  json.member("type", to_string(spec.type));
  json.integer_member("port", 0);
  json.key("shape");
  json.begin_array();
  for (const std::int64_t dimension : spec.shape)
    json.integer(dimension);
  json.end_array();
  json.end_object();
}

void write_numbers(JsonWriter &json, std::string_view name, const std::map<std::string, double> &values) {
  json.key(name);
  json.begin_object();
  for (const auto &[value_name, value] : values)
    json.number_member(value_name, value);
  json.end_object();
}

void write_outcome(JsonWriter &json, const Outcome &outcome) {
  json.key("outcome");
  json.begin_object();
  write_numbers(json, "values", outcome.values);
  json.member("status", outcome.status);
  if (!outcome.contexts.empty()) {
    json.key("contexts");
    json.begin_object();
    for (const auto &[context, values] : outcome.contexts)
      write_numbers(json, context, values);
    json.end_object();
  }
  json.end_object();
}

void write_exploration(JsonWriter &json, const Exploration &exploration) {
  json.key("exploration");
  json.begin_object();
  json.integer_member("seed", exploration.seed);
  json.number_member("temperature", exploration.temperature);
  json.number_member("epsilon", exploration.epsilon);
  json.end_object();
}

/// A line that holds one object, whose members `write_members` writes.
template <class WriteMembers> std::string object_line(WriteMembers &&write_members) {
  JsonWriter json;
  json.begin_object();
  write_members(json);
  json.end_object();
  return json.take() + "\n";
}

Status malformed_answer(std::string_view line) {
  return invalid_argument("the server's answer does not follow the protocol: " + quoted(line));
}

Status malformed_header(const std::string &expected) {
  return invalid_argument("not a header line of LLVM's protocol: " + expected);
}

/// The status that an `error` object holds; InvalidArgument where it holds none.
Status error_in(const json::Value &error, std::string_view line) {
  const json::Value *number = error.find("status");
  const json::Value *message = error.find("message");
  const auto code = number ? number->as_integer<std::uint64_t>() : std::nullopt;
  const auto text = message ? message->as_string() : std::nullopt;
  if (!code || !text || *code == 0)
    return malformed_answer(line);
  const auto known = std::min<std::uint64_t>(*code, std::numeric_limits<int>::max());
  return {status_code_from(static_cast<int>(known)), *text};
}

/// Parse an answer. An error that it carries is the result's status.
Result<json::Value> parse_answer(std::string_view line) {
  Result<json::Value> answer = json::parse(line);
  if (!answer.ok() || answer->kind != json::Value::Kind::Object)
    return malformed_answer(line);
  if (const json::Value *error = answer->find("error"))
    return error_in(*error, line);
  return answer;
}

std::string text_in(const json::Value &object, std::string_view name) {
  const json::Value *value = object.find(name);
  return value ? value->as_string().value_or("") : "";
}

Result<TensorSpec> parse_spec(const json::Value &object) {
  TensorSpec spec{text_in(object, "name"), ElementType::Int64, {}};
  const std::string type = text_in(object, "type");
  const json::Value *shape = object.find("shape");
  if (spec.name.empty() || type.empty() || !shape || shape->kind != json::Value::Kind::Array)
    return malformed_header("a tensor has a name, a type and a shape");
  const std::optional<ElementType> element = element_type_from(type);
  if (!element)
    return malformed_header(spec.name + " has the unknown element type '" + type + "'");
  spec.type = *element;
  for (const json::Member &dimension : shape->members) {
    const auto size = dimension.value.as_integer<std::int64_t>();
    if (!size)
      return malformed_header(spec.name + " has a dimension that is not a 64-bit integer");
    spec.shape.push_back(*size);
  }
  return spec;
}

} // namespace

std::string hello_line(const OpenOptions &options) {
  return object_line([&](JsonWriter &json) {
    json.integer_member("policybridge", 1);
    json.member("policy", options.policy.name);
    if (options.policy.version)
      json.integer_member("version", *options.policy.version);
    if (options.policy.alias)
      json.member("alias", *options.policy.alias);
    write_texts(json, "options", options.options);
    write_texts(json, "labels", options.labels);
    if (!options.context.empty())
      json.member("context", options.context);
    if (options.takes_forms)
      json.member("evaluate", "here");
    if (options.exploration) {
      json.member("framing", "chance");
      write_exploration(json, *options.exploration);
    }
  });
}

std::string resume_line(const SessionInfo &info, const OpenOptions &options) {
  const std::string alias = options.policy.version ? "" : options.policy.alias.value_or("latest");
  return object_line([&](JsonWriter &json) {
    json.integer_member("policybridge", 1);
    json.member("resume", info.id);
    json.member("policy", info.policy.name);
    json.integer_member("version", info.policy.version);
    json.member("digest", info.policy.digest);
    if (!alias.empty() && alias.compare(0, 7, "sha256:") != 0)
      json.member("alias", alias);
    write_texts(json, "options", options.options);
    write_texts(json, "labels", options.labels);
    if (!options.context.empty())
      json.member("context", options.context);
    if (options.exploration)
      write_exploration(json, *options.exploration);
  });
}

std::string header_line(const Signature &signature) {
  return object_line([&](JsonWriter &json) {
    json.key("features");
    json.begin_array();
    for (const TensorSpec &feature : signature.features)
      write_spec(json, feature);
    json.end_array();
    json.key("advice");
    write_spec(json, signature.advice);
  });
}

std::string context_line(std::string_view name) {
  return object_line([&](JsonWriter &json) { json.member("context", name); });
}

std::string outcome_line(const Outcome &outcome) {
  return object_line([&](JsonWriter &json) { write_outcome(json, outcome); });
}

std::string form_line(std::string_view digest) {
  return object_line([&](JsonWriter &json) { json.member("form", digest); });
}

std::string decided_line(std::uint32_t count, std::chrono::nanoseconds time, bool chances) {
  return object_line([&](JsonWriter &json) {
    json.integer_member("decided", count);
    json.integer_member("nanoseconds", static_cast<std::uint64_t>(std::max<std::int64_t>(time.count(), 0)));
    if (chances) {
      json.key("chances");
      json.boolean(true);
    }
  });
}

std::string end_line() { return "{\"end\":true}\n"; }

std::string report_line(std::string_view session_id, const Outcome &outcome) {
  return object_line([&](JsonWriter &json) {
    json.integer_member("policybridge", 1);
    json.member("report", session_id);
    write_outcome(json, outcome);
  });
}

Result<Signature> parse_header(std::string_view line) {
  const Result<json::Value> header = json::parse(line);
  const json::Value *features = header.ok() ? header->find("features") : nullptr;
  const json::Value *advice = header.ok() ? header->find("advice") : nullptr;
  if (!features || features->kind != json::Value::Kind::Array || !advice)
    return malformed_header("it is a JSON object with features and advice, not " + quoted(line));
  Signature signature;
  for (const json::Member &feature : features->members) {
    Result<TensorSpec> spec = parse_spec(feature.value);
    if (!spec.ok())
      return spec.status();
    signature.features.push_back(*std::move(spec));
  }
  Result<TensorSpec> spec = parse_spec(*advice);
  if (!spec.ok())
    return spec.status();
  signature.advice = *std::move(spec);
  if (Status status = signature.check(); !status.ok())
    return status;
  return signature;
}

Result<std::string> parse_context(std::string_view line) {
  const Result<json::Value> context = json::parse(line);
  const json::Value *name = context.ok() ? context->find("context") : nullptr;
  if (!name || name->kind != json::Value::Kind::String)
    return invalid_argument("not a context line of LLVM's protocol: " + quoted(line));
  return name->text;
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
  const auto version = number ? number->as_integer<std::uint64_t>() : std::nullopt;
  SessionInfo info{text_in(*answer, "session"), {text_in(*answer, "policy"), 0, text_in(*answer, "digest")}};
  if (!version || info.id.empty() || info.policy.name.empty())
    return malformed_answer(line);
  info.policy.version = *version;
  if (const json::Value *kinds = answer->find("decides")) {
    if (kinds->kind != json::Value::Kind::Array)
      return malformed_answer(line);
    for (const json::Member &kind : kinds->members) {
      const auto name = kind.value.as_string();
      if (!name)
        return malformed_answer(line);
      info.decides.push_back(*name);
    }
  }
  if (const json::Value *forms = answer->find("forms"))
    for (const json::Member &form : forms->members) {
      const json::Value *bytes = form.value.find("bytes");
      const auto size = bytes ? bytes->as_integer<std::uint64_t>() : std::nullopt;
      info.forms[form.name] = {text_in(form.value, "digest"), size.value_or(0)};
    }
  if (const json::Value *kinds = answer->find("outside"))
    for (const json::Member &kind : kinds->members)
      info.outside[kind.name] = kind.value.as_string().value_or("");
  return info;
}

Status parse_recorded(std::string_view line) {
  Result<json::Value> answer = parse_answer(line);
  if (!answer.ok())
    return answer.status();
  const json::Value *recorded = answer->find("recorded");
  return recorded && recorded->boolean ? Status() : malformed_answer(line);
}

Status parse_failure(std::string_view line) {
  Result<json::Value> answer = parse_answer(line);
  return answer.ok() ? malformed_answer(line) : answer.status();
}

} // namespace policybridge::protocol
