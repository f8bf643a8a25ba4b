#include "outcome.h"

#include "files.h"
#include "json_writer.h"
#include "sha256.h"
#include "utf8.h"

#include <algorithm>
#include <cstdlib>

namespace policybridge {

namespace {

// Hexadecimal digits of a SHA-256 that a double, which every outcome is, holds exactly.
constexpr std::size_t digits = 13;

constexpr const char *label = "compilation";

/// The file that the command names as its output; empty where it names none.
std::string output_of(const Words &command) {
  for (std::size_t place = command.size(); place-- > 1;)
    if (command[place - 1] == "-o" || command[place - 1] == "--o")
      return command[place];
  return "";
}

std::optional<double> object_digest(const std::string &path) {
  if (path.empty() || !is_file(path))
    return {};
  Result<std::string> content = read_file(path);
  if (!content)
    return {};
  return static_cast<double>(strtoll(sha256(*content).substr(0, digits).c_str(), nullptr, 16));
}

const char *status_of(const Report &told) {
  if (told.error)
    return "error";
  if (told.status)
    return "failed";
  return told.fallback ? "fallback" : "ok";
}

std::string outcome_fields(const Report &told, const Config &config) {
  const Statistics &counted = told.statistics;
  JsonWriter json;
  json.begin_object();
  json.key("values");
  json.begin_object();
  const std::pair<const char *, std::int64_t> counts[] = {
      {"exit_status", told.status},   {"asked", counted.decisions},
      {"defaults", counted.defaults}, {"sessions", static_cast<std::int64_t>(counted.sessions.size())},
      {"headers", counted.headers},
  };
  for (const auto &[name, value] : counts) {
    json.key(name);
    json.integer(value);
  }
  json.key("seconds");
  json.number(told.seconds);
  if (const auto digest = told.status ? std::nullopt : object_digest(output_of(config.command))) {
    json.key("object_digest");
    json.number(*digest);
  }
  json.end_object();
  json.key("status");
  json.string(status_of(told));
  json.end_object();
  return json.take();
}

std::string report_line(const std::string &session, const std::string &outcome) {
  JsonWriter json;
  json.string(session);
  return R"({"policybridge":1,"report":)" + json.take() + R"(,"outcome":)" + outcome + "}\n";
}

} // namespace

Labels session_labels(const Config &config) {
  const std::string folder = working_folder();
  Labels labels;
  // None where a word is no Unicode text, and cannot be sent.
  if (is_utf8(folder) && std::all_of(config.command.begin(), config.command.end(), is_utf8)) {
    JsonWriter json;
    json.begin_object();
    json.key("command");
    json.strings(config.command);
    json.key("cwd");
    json.string(folder);
    json.key("task");
    json.string(config.task->name);
    json.key("growth_limit");
    json.string(general(config.growth_limit));
    json.end_object();
    labels.emplace_back(label, json.take());
  }
  for (const auto &own : config.labels)
    if (own.first == label)
      labels.clear();
  labels.insert(labels.end(), config.labels.begin(), config.labels.end());
  return labels;
}

Failure report_outcome(const Report &told, const Config &config, Patience patience) {
  const Failure &failure = told.statistics.failure;
  // Who did not answer a moment ago would only be waited for once more.
  if (told.statistics.sessions.empty() ||
      (failure && (failure->code == Unavailable || failure->code == DeadlineExceeded)))
    return {};
  const std::string outcome = outcome_fields(told, config);
  for (const std::string &session : told.statistics.sessions)
    if (Failure interrupted = report(config.socket, report_line(session, outcome), patience))
      return interrupted;
  return {};
}

} // namespace policybridge
