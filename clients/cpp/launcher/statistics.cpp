#include "statistics.h"

#include "files.h"
#include "json_writer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <unistd.h>

namespace policybridge {

namespace {

double rounded(double value, double digits) { return std::round(value * digits) / digits; }

/// The percentile of sorted numbers, between two of them in proportion.
double percentile(const std::vector<std::int64_t> &sorted, double part) {
  const double place = part * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const auto low = static_cast<double>(sorted[below]);
  const auto high = static_cast<double>(sorted[std::min(below + 1, sorted.size() - 1)]);
  return low + (high - low) * (place - std::floor(place));
}

void write_policy(JsonWriter &json, const std::optional<PolicyVersion> &policy) {
  if (!policy)
    return json.null();
  json.begin_object();
  json.key("name");
  json.string(policy->name);
  json.key("version");
  json.integer(policy->version);
  json.key("digest");
  json.string(policy->digest);
  json.end_object();
}

void write_latencies(JsonWriter &json, std::vector<std::int64_t> latencies) {
  if (latencies.empty())
    return json.null();
  std::sort(latencies.begin(), latencies.end());
  json.begin_object();
  json.key("p50");
  json.number(rounded(percentile(latencies, 0.50) / 1000, 10));
  json.key("p99");
  json.number(rounded(percentile(latencies, 0.99) / 1000, 10));
  json.end_object();
}

void write_fallback(JsonWriter &json, const std::optional<Fallback> &fallback) {
  if (!fallback)
    return json.null();
  json.begin_object();
  json.key("reason");
  json.string(fallback->reason);
  json.key("status");
  json.integer(fallback->status);
  json.key("decisions");
  json.integer(fallback->decisions);
  json.key("restarted");
  json.boolean(fallback->restarted);
  json.end_object();
}

void write_error(JsonWriter &json, const Failure &error) {
  if (!error)
    return json.null();
  json.begin_object();
  json.key("reason");
  json.string(error->message);
  json.key("status");
  json.integer(error->code);
  json.end_object();
}

void write_advice(JsonWriter &json, const std::map<std::int64_t, std::int64_t> &advice) {
  json.begin_object();
  for (const auto &[choice, count] : advice) {
    json.key(std::to_string(choice));
    json.integer(count);
  }
  json.end_object();
}

std::string to_json(const Report &report, const Config &config) {
  const Statistics &counted = report.statistics;
  JsonWriter json(true);
  json.begin_object();
  json.key("policy");
  write_policy(json, counted.policy);
  json.key("task");
  json.string(config.task->name);
  json.key("sessions");
  json.strings(counted.sessions);
  json.key("decisions");
  json.integer(counted.decisions);
  json.key("advice");
  write_advice(json, counted.advice);
  json.key("latency_us");
  write_latencies(json, counted.latencies);
  json.key("fallback");
  write_fallback(json, report.fallback);
  json.key("error");
  write_error(json, report.error);
  json.key("status");
  json.integer(report.status);
  json.key("seconds");
  json.number(rounded(report.seconds, 1e6));
  json.key("command");
  json.strings(config.command);
  json.end_object();
  return json.take() + "\n";
}

} // namespace

void Statistics::count(std::optional<std::int64_t> choice, std::int64_t nanoseconds) {
  ++decisions;
  if (choice)
    ++advice[*choice];
  latencies.push_back(nanoseconds);
}

Failure write_report(const Report &report, const Config &config) {
  std::string path = config.stats;
  const std::string process = std::to_string(getpid());
  for (std::size_t place = path.find("%p"); place != std::string::npos; place = path.find("%p", place))
    path.replace(place, 2, process);
  return write_file(path, to_json(report, config));
}

std::string general(double value) {
  char text[32];
  (void)snprintf(text, sizeof text, "%g", value);
  return text;
}

} // namespace policybridge
