#include "host.h"

#include "advisor.h"
#include "advisor_flags.h"
#include "files.h"
#include "llvm_version.h"
#include "outage.h"
#include "outcome.h"
#include "process.h"
#include "server.h"
#include "watchdog.h"

#include <cerrno>
#include <chrono>
#include <poll.h>
#include <unistd.h>

namespace policybridge {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begun) { return std::chrono::duration<double>(Clock::now() - begun).count(); }

/// A compiler and its channel. The watchdog watches both, so it is made first and destroyed last.
struct HostedCompiler {
  Watchdog watchdog;
  Channel channel;
  Process process;
};

/// One compilation.
class Host {
public:
  Host(const Config &config, const Compiler &compiler, Signals &signals, StoredDecisions *stored)
      : config_(config), compiler_(compiler), signals_(signals), stored_(stored),
        server_(connect_server(config, Interrupts(signals, compiler_end_.descriptor()))),
        outage_(config.server, config.policy, Outage::Time(config.falls_back ? config.retry_after : 0)) {}

  Result<CompilationReport> run();

  /// Give the session away that was open when the compiler ended; null if none was. This outlives it.
  std::unique_ptr<Session> take_session() { return std::move(session_); }

private:
  Status check_server();
  Result<HostedCompiler> start(const Defaults &defaults);
  Result<HostedCompiler> start_in(const std::string &folder, const Defaults &defaults);
  Result<int> serve(HostedCompiler hosted, const Defaults &defaults);
  Status answer_all(InteractiveReader &reader, const Channel &channel, Advisor &advisor);
  Result<CompilationReport> finish_without(Status failure);

  /// The failure, which the other compilations of the build learn of if it is a server's that does not answer.
  const Status &remembered(const Status &failure) const {
    if (!stored_)
      outage_.remember(failure);
    return failure;
  }

  const Config &config_;
  const Compiler &compiler_;
  Signals &signals_;
  StoredDecisions *const stored_;
  CompilerEnd compiler_end_;
  // One for all that is asked: another one to a far server costs as much as the decisions.
  const Result<std::shared_ptr<Connection>> server_;
  std::unique_ptr<Session> session_;
  const Outage outage_;
  CompilationReport report_;
  int llvm_ = 0;
  bool started_ = false;
  bool can_start_ = true; // false: the compiler could not be started
};

Result<CompilationReport> Host::run() {
  if (Status reported = stored_ ? Status() : outage_.check(); !reported.ok())
    return finish_without(std::move(reported));
  if (Status reached = check_server(); !reached.ok())
    return finish_without(remembered(reached));
  const Result<int> llvm = stored_ ? Result<int>(stored_->llvm) : llvm_version(compiler_.start, signals_);
  if (!llvm.ok())
    return llvm.status();
  llvm_ = *llvm;
  const Defaults defaults = Defaults::of(compiler_, *config_.task, llvm_);
  Result<HostedCompiler> hosted = start(defaults);
  if (!hosted.ok())
    return can_start_ || config_.falls_back ? finish_without(hosted.status()) : hosted.status();
  started_ = true;
  const Result<int> status = serve(*std::move(hosted), defaults);
  if (!status.ok())
    return finish_without(remembered(status.status()));
  report_.status = *status;
  if (const Status &failure = remembered(report_.statistics.failure); !failure.ok())
    report_.fallback = FallbackReport{failure, report_.statistics.defaults, false};
  return std::move(report_);
}

/// Find out before the compiler starts whether the server can be reached, where the compiler can do without.
Status Host::check_server() {
  if (!config_.falls_back || stored_)
    return {};
  return server_.ok() ? (*server_)->check() : server_.status();
}

/// Start the compiler with its channel in the first folder for temporary files that can hold one.
Result<HostedCompiler> Host::start(const Defaults &defaults) {
  Status failure = internal_error("no folder for temporary files can be written");
  for (const std::string &folder : Channel::new_folders()) {
    Result<HostedCompiler> hosted = start_in(folder, defaults);
    if (hosted.ok() || !can_start_)
      return hosted;
    failure = hosted.status();
  }
  return failure;
}

Result<HostedCompiler> Host::start_in(const std::string &folder, const Defaults &defaults) {
  Result<Watchdog> watchdog = Watchdog::start(folder);
  if (!watchdog.ok())
    return watchdog.status();
  Result<Channel> channel = Channel::make(folder);
  if (!channel.ok())
    return channel.status();
  const Strings flags = advisor_flags(*config_.task, channel->base(), config_.growth_limit, defaults);
  const ProcessOptions options = {advisor_environment(compiler_.kind, folder), watchdog->group_descriptor()};
  Result<Process> process = Process::start(compiler_.with_flags(flags), signals_, options);
  if (can_start_ = process.ok(); !can_start_)
    return process.status();
  return HostedCompiler{*std::move(watchdog), *std::move(channel), *std::move(process)};
}

/// Answer until the compiler exits, and give its status. Only its exit is the end: its pipes stay open until then.
Result<int> Host::serve(HostedCompiler hosted, const Defaults &defaults) {
  const Interrupts interrupts(signals_, hosted.process.descriptor());
  Advisor advisor(config_, [this] { return session_labels(config_, compiler_, llvm_, signals_); }, defaults,
                  report_.statistics, interrupts, config_.falls_back && defaults.known(), server_, stored_);
  compiler_end_.watch(hosted.process.descriptor());
  InteractiveReader reader;
  pollfd sources[] = {{hosted.process.descriptor(), POLLIN, 0},
                      {signals_.descriptor(), POLLIN, 0},
                      {hosted.channel.observations(), POLLIN, 0}};
  for (;;) {
    if (poll(sources, std::size(sources), -1) < 0)
      continue;
    if (sources[1].revents && signals_.received())
      return interrupted();
    if (sources[0].revents) {
      session_ = advisor.take_session();
      return hosted.process.reap();
    }
    Status status = answer_all(reader, hosted.channel, advisor);
    if (!status.ok() && signals_.received())
      return interrupted();
    if (!status.ok() && !interrupts.compiler_ended())
      return status;
  }
}

Status Host::answer_all(InteractiveReader &reader, const Channel &channel, Advisor &advisor) {
  std::size_t size = 0;
  char *space = reader.space(size);
  const ssize_t got = read(channel.observations(), space, size);
  if (got <= 0)
    return {};
  reader.add(static_cast<std::size_t>(got));
  for (;;) {
    const Result<std::optional<Message>> message = reader.next(advisor.payload_size());
    if (!message.ok())
      return message.status();
    if (!*message)
      return {};
    if (Status status = advisor.receive(**message, channel); !status.ok())
      return status;
  }
}

/// Finish the compilation after a failure that left no advice: without the policy, or as failed.
Result<CompilationReport> Host::finish_without(Status failure) {
  if (signals_.received())
    return interrupted();
  // A policy that is not for such a module is no fault.
  const bool falls_back = config_.falls_back || failure.code() == StatusCode::OutOfRange;
  if (falls_back && (!started_ || compiler_.repeatable())) {
    const Result<CompilationReport> plain = run_plain(compiler_, signals_);
    if (!plain.ok())
      return plain.status();
    report_.status = plain->status;
    report_.fallback = FallbackReport{std::move(failure), 0, started_};
    return std::move(report_);
  }
  if (falls_back)
    failure = failed_precondition(failure.message() + "; the compiler uses stdin or stdout, so that it cannot be run "
                                                      "once more without the policy");
  report_.status = failed_status;
  report_.error = std::move(failure);
  return std::move(report_);
}

} // namespace

Result<CompilationReport> run_compiler(const Config &config, const Compiler &compiler, Signals &signals,
                                       StoredDecisions *stored) {
  const Clock::time_point begun = Clock::now();
  Host host(config, compiler, signals, stored);
  Result<CompilationReport> report = host.run();
  if (!report.ok())
    return report;
  report->seconds = seconds_since(begun);
  if (Status status = report_outcome(*report, config, signals, host.take_session()); !status.ok())
    return status;
  return report;
}

Result<CompilationReport> run_plain(const Compiler &compiler, Signals &signals) {
  const Clock::time_point begun = Clock::now();
  Result<Process> process = Process::start(compiler.command(), signals);
  if (!process.ok()) {
    if (!find_program(compiler.start[0]).empty())
      say("without statistics: " + process.status().message());
    // Where it is the compiler that cannot be started, this fails with the same reason.
    signals.restore();
    return become(compiler.command());
  }
  if (Status status = process->await(signals); !status.ok())
    return status;
  CompilationReport report;
  report.status = process->reap();
  report.seconds = seconds_since(begun);
  return report;
}

} // namespace policybridge
