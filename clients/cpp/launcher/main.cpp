/// `policybridge-run`: a compiler whose decisions a policy makes. The command of `policybridge run`, without Python.

#include "arguments.h"
#include "asking.h"
#include "host.h"
#include "process.h"

#include <cerrno>
#include <cstdio>

namespace {

using namespace policybridge;

constexpr int usage_status = 2;
constexpr int not_started_status = 126;
constexpr int not_found_status = 127;
constexpr int signal_status = 128;

int say(const std::string &message, int status) {
  (void)fprintf(stderr, "policybridge-run: %s\n", message.c_str());
  return status;
}

int status_of(const Error &error) {
  switch (error.kind) {
  case Error::Kind::Signal:
    return signal_status + error.code;
  case Error::Kind::System:
    return say(error.message, error.code == ENOENT ? not_found_status : not_started_status);
  case Error::Kind::Policy:
  case Error::Kind::CompilerEnded:
    break;
  }
  return say(error.message, usage_status);
}

int told(const Report &report) {
  if (report.error)
    return say("no advice, and the compiler was ended: " + report.error->message, report.status);
  if (!report.fallback)
    return report.status;
  const std::int64_t decisions = report.fallback->decisions;
  const std::string where = decisions ? std::to_string(decisions) + " decisions" : "all decisions";
  return say(where + " are the compiler's own: " + report.fallback->reason, report.status);
}

int run(const Config &config) {
  Result<Compiler> compiler = Compiler::of(config.command);
  if (!compiler)
    return status_of(compiler.error());
  if (const Failure unasked = config.task->check(compiler->kind))
    return status_of(*unasked);
  const bool asks = may_ask(*compiler);
  if (!asks && config.stats.empty())
    return status_of(become(compiler->command()));
  Signals signals;
  Result<Report> report = asks ? run_compiler(config, *compiler, signals) : run_plain(*compiler, signals);
  if (!report)
    return status_of(report.error());
  if (const Failure unwritten = config.stats.empty() ? Failure() : write_report(*report, config))
    return status_of(*unwritten);
  return told(*report);
}

int part(const Farewell &farewell) {
  (void)fputs(farewell.text.c_str(), farewell.status ? stderr : stdout);
  return farewell.status;
}

} // namespace

int main(int count, char **words) {
  const auto parsed = parse_arguments({words + (count ? 1 : 0), words + count});
  if (const auto *farewell = std::get_if<Farewell>(&parsed))
    return part(*farewell);
  return run(*std::get_if<Config>(&parsed));
}
