#include "outcome.h"

#include "files.h"
#include "json_writer.h"
#include "server.h"
#include "sha256.h"
#include "sources.h"
#include "target.h"
#include "trace_context.h"
#include "utf8.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace policybridge {

namespace {

// The hexadecimal digits of a SHA-256 that an outcome's number, a double, holds exactly.
constexpr std::size_t digits = 13;

std::optional<double> object_digest(const std::string &path) {
  if (path.empty() || !is_file(path))
    return {};
  const Result<std::string> content = read_file(path);
  if (!content.ok())
    return {};
  return static_cast<double>(strtoll(sha256(*content).substr(0, digits).c_str(), nullptr, 16));
}

const char *status_word(const CompilationReport &report) {
  if (!report.error.ok())
    return "error";
  if (*report.status)
    return "failed";
  return report.fallback ? "fallback" : "ok";
}

Outcome outcome_of(const CompilationReport &report, const Config &config) {
  const Statistics &counted = report.statistics;
  Outcome outcome{{{"exit_status", *report.status},
                   {"asked", static_cast<double>(counted.decisions)},
                   {"defaults", static_cast<double>(counted.defaults)},
                   {"limited", static_cast<double>(counted.limited)},
                   {"sessions", static_cast<double>(counted.sessions.size())},
                   {"headers", static_cast<double>(counted.headers)},
                   {"seconds", report.seconds}},
                  status_word(report)};
  const Result<Compiler> compiler = Compiler::of(config.command);
  const bool has_object = compiler.ok() && !*report.status;
  if (const auto digest = has_object ? object_digest(output_of(*compiler)) : std::nullopt)
    outcome.values["object_digest"] = *digest;
  return outcome;
}

/// How to repeat the compilation, for `policybridge replay`.
std::string repeatable_command(const Config &config, const std::string &folder) {
  JsonWriter json;
  json.begin_object();
  json.strings_member("command", config.command);
  json.member("cwd", folder);
  json.member("task", config.task->name);
  json.member("growth_limit", general(config.growth_limit));
  json.end_object();
  return json.take();
}

} // namespace

std::map<std::string, std::string> session_labels(const Config &config, const Compiler &compiler, int llvm,
                                                  Signals &signals) {
  std::map<std::string, std::string> labels = config.labels;
  const std::string folder = working_folder();
  // A word that is not UTF-8 cannot be sent as JSON, and without it the command could not be repeated.
  if (is_utf8(folder) && std::all_of(config.command.begin(), config.command.end(), is_utf8))
    labels.emplace("compilation", repeatable_command(config, folder));
  labels.merge(compiler.scope_labels());
  if (!labels.count("target"))
    if (std::string target = target_of(compiler, signals); !target.empty())
      labels.emplace("target", std::move(target));
  if (llvm)
    labels.emplace("llvm", std::to_string(llvm));
  add_trace_context(labels);
  return labels;
}

Status report_outcome(const CompilationReport &report, const Config &config, Signals &signals,
                      std::unique_ptr<Session> open) {
  std::vector<std::string> sessions = report.statistics.sessions;
  if (sessions.empty())
    return {};
  const Outcome outcome = outcome_of(report, config);
  // It is over if the compiler ended while it waited for advice.
  if (open && open->is_open() && outcome.check().ok()) {
    const Status status = open->conclude(outcome);
    if (signals.received())
      return interrupted();
    // Another server with the same ledger may have come in its place. Most servers keep none; the error says no more.
    if (status.code() != StatusCode::Unavailable)
      sessions.pop_back();
  }
  // A server that did not answer a moment ago is not waited for again.
  const StatusCode failure = report.statistics.failure.code();
  if (sessions.empty() || failure == StatusCode::Unavailable || failure == StatusCode::DeadlineExceeded)
    return {};
  const auto server = connect_server(config, Interrupts(signals));
  if (!server.ok())
    return {};
  for (const std::string &session : sessions) {
    (void)(*server)->report_outcome(session, outcome);
    if (signals.received())
      return interrupted();
  }
  return {};
}

} // namespace policybridge
