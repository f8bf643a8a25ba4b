#include "statistics.h"

#include "json_writer.h"

#include <algorithm>
#include <cmath>

namespace policybridge {

namespace {

double rounded(double value, double digits) { return std::round(value * digits) / digits; }

/// The percentile of sorted numbers, interpolated linearly between the two nearest ones, as numpy does.
double percentile(const std::vector<std::int64_t> &sorted, double part) {
  const double place = part * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const auto low = static_cast<double>(sorted[below]);
  const auto high = static_cast<double>(sorted[std::min(below + 1, sorted.size() - 1)]);
  return low + (high - low) * (place - std::floor(place));
}

/// Write an object under `name`, or null where there is none.
template <class WriteMembers>
void object_member(JsonWriter &json, std::string_view name, bool exists, WriteMembers &&write_members) {
  json.key(name);
  if (!exists)
    return json.null();
  json.begin_object();
  write_members();
  json.end_object();
}

void write_latencies(JsonWriter &json, std::vector<std::int64_t> latencies) {
  std::sort(latencies.begin(), latencies.end());
  object_member(json, "latency_us", !latencies.empty(), [&] {
    json.number_member("p50", rounded(percentile(latencies, 0.50) / 1000, 10));
    json.number_member("p99", rounded(percentile(latencies, 0.99) / 1000, 10));
  });
}

void write_reason(JsonWriter &json, const Status &reason) {
  json.member("reason", reason.message());
  json.integer_member("status", static_cast<int>(reason.code()));
}

void write_store(JsonWriter &json, const StoreReport &report) {
  object_member(json, "store", true, [&] {
    json.member("path", report.store);
    json.member("module", report.module);
    json.key("exact");
    json.boolean(report.exact);
    json.integer_member("applied", report.applied);
    json.integer_member("unmatched", report.decisions - report.applied);
    json.integer_member("passes", report.passes);
  });
}

void write_passes(JsonWriter &json, const PassStatistics &passes) {
  object_member(json, "passes", true, [&] {
    json.integer_member("decisions", passes.decisions);
    object_member(json, "advice", true, [&] {
      for (const auto &[name, count] : passes.advice)
        json.integer_member(name, count);
    });
    json.integer_member("defaults", passes.defaults);
  });
}

void write_outside(JsonWriter &json, const std::map<std::string, KindOutside> &outside) {
  object_member(json, "outside", true, [&] {
    for (const auto &[kind, left] : outside)
      object_member(json, kind, true, [&json, &left = left] {
        json.member("reason", left.reason);
        json.integer_member("decisions", left.decisions);
      });
  });
}

} // namespace

std::shared_ptr<RecordCounts> new_records() { return std::make_shared<RecordCounts>(); }

void Statistics::count(std::optional<std::int64_t> choice, std::chrono::nanoseconds latency) {
  ++decisions;
  if (choice)
    ++advice[*choice];
  latencies.push_back(latency.count());
}

void Statistics::count_outside(const std::string &kind, std::uint64_t count) {
  if (const auto found = outside.find(kind); found != outside.end())
    found->second.decisions += count;
}

std::string CompilationReport::to_json(std::string_view task, const std::vector<std::string> &command) const {
  const std::optional<PolicyVersion> &policy = statistics.policy;
  JsonWriter json(true);
  json.begin_object();
  object_member(json, "policy", policy.has_value(), [&] {
    json.member("name", policy->name);
    json.integer_member("version", policy->version);
    json.member("digest", policy->digest);
  });
  json.member("task", task);
  json.strings_member("sessions", statistics.sessions);
  json.integer_member("decisions", statistics.decisions);
  object_member(json, "advice", true, [&] {
    for (const auto &[choice, count] : statistics.advice)
      json.integer_member(std::to_string(choice), count);
  });
  json.integer_member("limited", statistics.limited);
  if (!statistics.not_asked.empty())
    json.strings_member("not_asked", statistics.not_asked);
  if (const RecordCounts &records = *statistics.records; records.kept || records.sent || records.refused)
    object_member(json, "records", true, [&] {
      json.integer_member("kept", records.kept);
      json.integer_member("sent", records.sent);
      json.integer_member("refused", records.refused);
    });
  if (statistics.passes)
    write_passes(json, *statistics.passes);
  if (!statistics.outside.empty())
    write_outside(json, statistics.outside);
  if (store)
    write_store(json, *store);
  write_latencies(json, statistics.latencies);
  object_member(json, "fallback", fallback.has_value(), [&] {
    write_reason(json, fallback->reason);
    json.integer_member("decisions", fallback->decisions);
    json.key("restarted");
    json.boolean(fallback->restarted);
  });
  object_member(json, "error", !error.ok(), [&] { write_reason(json, error); });
  json.key("status");
  if (status)
    json.integer(*status);
  else
    json.null();
  json.number_member("seconds", rounded(seconds, 1e6));
  json.strings_member("command", command);
  json.end_object();
  return json.take() + "\n";
}

} // namespace policybridge
