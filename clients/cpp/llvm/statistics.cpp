#include "statistics.h"

#include "llvm/Support/Format.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>

using namespace llvm;

namespace policybridge::plugin {
namespace {

/// In microseconds, interpolated between the two nearest ones, as numpy does.
double percentile(const std::vector<std::uint64_t> &sorted, double percent) {
  const double place = percent / 100 * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const auto low = static_cast<double>(sorted[below]);
  const auto high = static_cast<double>(sorted[std::min(below + 1, sorted.size() - 1)]);
  return (low + (high - low) * (place - static_cast<double>(below))) / 1000;
}

/// LLVM's JSON would write all seventeen digits.
void write_number(json::OStream &out, StringRef name, const char *format_, double number) {
  out.attributeBegin(name);
  out.rawValue([&](raw_ostream &raw) { raw << format(format_, number); });
  out.attributeEnd();
}

void write_latencies(json::OStream &out, std::vector<std::uint64_t> latencies) {
  if (latencies.empty())
    return out.attribute("latency_us", nullptr);
  std::sort(latencies.begin(), latencies.end());
  out.attributeObject("latency_us", [&] {
    write_number(out, "p50", "%.1f", percentile(latencies, 50));
    write_number(out, "p99", "%.1f", percentile(latencies, 99));
  });
}

void write_policy(json::OStream &out, const std::optional<SessionInfo> &session) {
  if (!session)
    return out.attribute("policy", nullptr);
  out.attributeObject("policy", [&] {
    out.attribute("name", session->policy.name);
    out.attribute("version", session->policy.version);
    out.attribute("digest", session->policy.digest);
  });
}

void write_advice(json::OStream &out, const std::uint64_t (&counts)[2]) {
  out.attributeObject("advice", [&] {
    for (const int choice : {0, 1})
      if (counts[choice])
        out.attribute(std::to_string(choice), counts[choice]);
  });
}

void write_reason(json::OStream &out, const Status &failure) {
  out.attribute("reason", json::fixUTF8(failure.message()));
  out.attribute("status", static_cast<int>(failure.code()));
}

void write_fallback(json::OStream &out, const Statistics &statistics) {
  if (statistics.failure.ok() || statistics.fatal)
    return out.attribute("fallback", nullptr);
  out.attributeObject("fallback", [&] {
    write_reason(out, statistics.failure);
    out.attribute("decisions", statistics.defaults);
    out.attribute("restarted", false);
  });
}

void write_error(json::OStream &out, const Statistics &statistics) {
  if (!statistics.fatal)
    return out.attribute("error", nullptr);
  out.attributeObject("error", [&] { write_reason(out, statistics.failure); });
}

/// The words that this process was started with; empty where the system does not tell.
void write_command(json::OStream &out) {
  auto text = MemoryBuffer::getFileAsStream("/proc/self/cmdline");
  SmallVector<StringRef> words;
  if (text)
    (*text)->getBuffer().split(words, '\0', -1, false);
  out.attributeArray("command", [&] {
    for (const StringRef word : words)
      out.value(json::fixUTF8(word));
  });
}

void write_file(json::OStream &out, const Statistics &statistics) {
  out.object([&] {
    write_policy(out, statistics.session);
    out.attribute("task", "inline");
    out.attributeArray("sessions", [&] {
      if (statistics.session)
        out.value(statistics.session->id);
    });
    out.attribute("decisions", statistics.decisions());
    write_advice(out, statistics.advice);
    write_latencies(out, statistics.latencies);
    write_fallback(out, statistics);
    write_error(out, statistics);
    out.attribute("status", nullptr);
    write_number(out, "seconds", "%.6f", statistics.seconds);
    write_command(out);
  });
}

} // namespace

Outcome Statistics::to_outcome() const {
  Outcome outcome;
  outcome.values = {{"asked", static_cast<double>(decisions())},
                    {"defaults", static_cast<double>(defaults)},
                    {"inlined", static_cast<double>(inlined)},
                    {"instructions_before", static_cast<double>(instructions_before)},
                    {"instructions_after", static_cast<double>(instructions_after)},
                    {"seconds", seconds}};
  outcome.status = failure.ok() ? "ok" : fatal ? "error" : "fallback";
  return outcome;
}

Error Statistics::write(const std::string &path) const {
  return writeToOutput(path, [this](raw_ostream &out) {
    json::OStream json(out, 2);
    write_file(json, *this);
    out << "\n";
    return Error::success();
  });
}

} // namespace policybridge::plugin
