/// `policybridge-run`: runs a compiler under a policy. It is `policybridge run` without Python.

#include "advisor_flags.h"
#include "arguments.h"
#include "compiler_cache.h"
#include "decided.h"
#include "files.h"
#include "found_store.h"
#include "host.h"
#include "linking.h"
#include "process.h"
#include "sources.h"
#include "words.h"

#include <cstdlib>
#include <unistd.h>

namespace {

using namespace policybridge;

constexpr int usage_status = 2;
constexpr int not_started_status = 126;
constexpr int not_found_status = 127;
constexpr int signal_status = 128;

int print_error(const std::string &message, int status) {
  say(message);
  return status;
}

/// For a compiler that cannot be started, or a file that cannot be written.
int print_system_error(const Status &error) {
  return print_error(error.message(), error.code() == StatusCode::NotFound ? not_found_status : not_started_status);
}

int print_failures(const CompilationReport &report, const Config &config) {
  const int status = *report.status;
  if (report.statistics.limited)
    remark(config.command, std::to_string(report.statistics.limited) +
                               " decisions are the compiler's own: the policy has added " +
                               general(config.growth_limit) + " times the module's size (--growth-limit)");
  for (const std::string &kind : report.statistics.not_asked)
    remark(config.command, "the policy decides " + kind +
                               ", too, for which LLVM asks through a plugin alone (policybridge doctor tells where to get it)");
  if (!report.error.ok())
    return print_error((config.decisions.empty() ? "no advice, and the compiler was ended: "
                                                 : "no decisions, and nothing compiled: ") +
                           report.error.message(),
                       status);
  if (!report.fallback)
    return status;
  const std::uint64_t count = report.fallback->decisions;
  const std::string decisions = count ? std::to_string(count) + " decisions" : "all decisions";
  remark(config.command, decisions + " are the compiler's own: " + report.fallback->reason.message());
  return status;
}

/// Write the statistics file, if there is one; `%p` in its name becomes this process's id.
Status write_statistics(const CompilationReport &report, const Config &config) {
  std::string path = config.stats;
  if (path.empty())
    return {};
  const std::string process = std::to_string(getpid());
  for (std::size_t place = path.find("%p"); place != std::string::npos; place = path.find("%p", place))
    path.replace(place, 2, process);
  return write_file(path, report.to_json(config.task->name, config.command));
}

/// Take the project's own store, if there is one that may be used; without one the compiler decides.
void take_found_store(Config &config, const Compiler &compiler) {
  FoundStore found = find_store(source_of(compiler.arguments));
  if (const std::string cache = compiler_cache(); found.is_taken() && !cache.empty() && !is_in_key(cache, found.path))
    found.refused = "under " + cache + " name it in " + extra_files_of(cache) +
                    ", because it does not see otherwise when the store changes";
  if (!found.refused.empty())
    remark(config.command, found.path + " is not applied: " + found.refused);
  config.is_plain = !found.is_taken();
  if (config.is_plain)
    return;
  config.decisions = found.path;
  if (holds(compiler.arguments, "-v"))
    remark(config.command, "decisions of " + found.path);
}

int run(Config config) {
  const Result<Compiler> compiler = Compiler::of(config.command);
  if (config.is_plain)
    setenv("POLICYBRIDGE_NO_DECISIONS", "1", 1); // for a plugin in the command
  // Where nothing is asked for, the launcher may stand before any compiler.
  const bool is_optional = config.is_plain || config.finds_store;
  if (!compiler.ok() && config.finds_store && is_build(config.command))
    remark(config.command, "a build starts its compilers itself, and gets no decisions from here: let it start each so, "
                           "as by make CC='policybridge-run -- clang'");
  if (!compiler.ok() && is_optional && !config.command.empty())
    return print_system_error(become(config.command));
  if (!compiler.ok())
    return print_error(compiler.status().message(), usage_status);
  const Status fits = config.task->check(compiler->kind);
  if (!fits.ok() && !is_optional)
    return print_error(fits.message(), usage_status);
  const bool links = config.task->name == "inline" && !config.exploration && links_with_lto(*compiler);
  const bool may_request = fits.ok() && may_request_advice(*compiler);
  if (config.finds_store && (links || may_request))
    take_found_store(config, *compiler);
  if (links && !config.is_plain) {
    Signals signals;
    const Status failure = become_linking(config, *compiler, signals);
    const auto number = signals.received();
    return number ? signal_status + *number : print_system_error(failure);
  }
  const bool needs_policy = may_request && !config.is_plain;
  if (!needs_policy && config.stats.empty())
    return print_system_error(become(compiler->command()));
  Signals signals;
  const Result<CompilationReport> report = !needs_policy              ? run_plain(*compiler, signals)
                                           : config.decisions.empty() ? run_compiler(config, *compiler, signals)
                                                                      : run_decided(config, *compiler, signals);
  if (const auto number = report.ok() ? std::nullopt : signals.received())
    return signal_status + *number;
  if (!report.ok())
    return print_system_error(report.status());
  // The compilation is done, and its status stands.
  if (const Status status = write_statistics(*report, config); !status.ok())
    remark(config.command, "no statistics: " + status.message());
  return print_failures(*report, config);
}

int print(const Exit &exit) {
  (void)fputs(exit.text.c_str(), exit.status ? stderr : stdout);
  return exit.status;
}

} // namespace

int main(int count, char **words) {
  auto parsed = parse_arguments({words + (count ? 1 : 0), words + count});
  if (const auto *exit = std::get_if<Exit>(&parsed))
    return print(*exit);
  return run(std::move(*std::get_if<Config>(&parsed)));
}
