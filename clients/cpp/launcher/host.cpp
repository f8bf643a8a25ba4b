#include "host.h"

#include "asking.h"
#include "channel.h"
#include "conversation.h"
#include "outcome.h"
#include "process.h"
#include "stream.h"
#include "watchdog.h"

#include <cerrno>
#include <chrono>
#include <poll.h>
#include <unistd.h>

namespace policybridge {

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begun) { return std::chrono::duration<double>(Clock::now() - begun).count(); }

/// One compilation.
class Host {
public:
  Host(const Config &config, const Compiler &compiler, Signals &signals)
      : config_(config), compiler_(compiler), signals_(signals) {}

  Result<Report> run();

private:
  Failure check_server() const;
  Result<int> ask();
  Result<int> serve(Process &process, const Channel &channel, Conversation &conversation);
  Failure answer_all(StreamReader &reader, const Channel &channel, Conversation &conversation, Patience patience);
  Failure end_without(Error error);
  Patience patience() const { return {config_.timeout, &signals_}; }

  const Config &config_;
  const Compiler &compiler_;
  Signals &signals_;
  Report report_;
  bool started_ = false;
};

Result<Report> Host::run() {
  Failure failure = config_.falls_back ? check_server() : Failure();
  if (!failure) {
    Result<int> status = ask();
    if (status)
      report_.status = *status;
    else
      failure = std::move(status.error());
  }
  if (failure) {
    if (failure->kind != Error::Kind::Policy)
      return std::move(*failure);
    if (Failure other = end_without(std::move(*failure)))
      return std::move(*other);
  } else if (const Failure &within = report_.statistics.failure) {
    report_.fallback = Fallback{within->message, within->code, report_.statistics.defaults};
  }
  return std::move(report_);
}

Failure Host::check_server() const {
  Result<Wire> wire = Wire::connect(config_.socket, patience());
  return wire ? Failure() : Failure(std::move(wire.error()));
}

Result<int> Host::ask() {
  Result<Defaults> defaults = Defaults::of(compiler_, *config_.task, signals_);
  if (!defaults)
    return std::move(defaults.error());
  // The watchdog comes before all that it watches, and goes after it.
  const std::string folder = Channel::new_folder();
  Result<Watchdog> watchdog = Watchdog::start(folder);
  if (!watchdog)
    return std::move(watchdog.error());
  Result<Channel> channel = Channel::make(folder);
  if (!channel)
    return std::move(channel.error());
  const Words flags = asking_flags(*config_.task, channel->base(), config_.growth_limit, *defaults);
  const Setup setup = {asking_variables(compiler_.kind, channel->folder()), watchdog->group()};
  Result<Process> process = Process::start(compiler_.with_flags(flags), signals_, setup);
  if (!process)
    return std::move(process.error());
  started_ = true;
  const Labels labels = session_labels(config_);
  const bool goes_on = config_.falls_back && defaults->known();
  Conversation conversation(config_, labels, *defaults, report_.statistics, goes_on);
  return serve(*process, *channel, conversation);
}

/// Answers until the compiler has exited, which alone is the end: its pipes stay open until then.
Result<int> Host::serve(Process &process, const Channel &channel, Conversation &conversation) {
  StreamReader reader;
  Patience waiting = patience();
  waiting.compiler = process.descriptor();
  pollfd sources[] = {
      {process.descriptor(), POLLIN, 0}, {signals_.descriptor(), POLLIN, 0}, {channel.observations(), POLLIN, 0}};
  for (;;) {
    if (poll(sources, 3, -1) < 0)
      continue;
    if (sources[1].revents)
      if (const std::optional<int> number = signals_.taken())
        return Error::signal(*number);
    if (sources[0].revents)
      return process.reap();
    Failure failure = answer_all(reader, channel, conversation, waiting);
    if (failure && failure->kind != Error::Kind::CompilerEnded)
      return std::move(*failure);
  }
}

Failure Host::answer_all(StreamReader &reader, const Channel &channel, Conversation &conversation, Patience patience) {
  std::size_t size = 0;
  char *space = reader.space(size);
  const ssize_t got = read(channel.observations(), space, size);
  if (got <= 0)
    return {};
  reader.taken(static_cast<std::size_t>(got));
  for (;;) {
    Result<std::optional<Event>> event = reader.next(conversation.payload_size());
    if (!event)
      return std::move(event.error());
    if (!*event)
      return {};
    if (Failure failure = conversation.answer(**event, channel, patience))
      return failure;
  }
}

Failure Host::end_without(Error error) {
  if (config_.falls_back && started_ && !compiler_.repeatable())
    error = Error::policy(FailedPrecondition, error.message + "; the compiler uses stdin or stdout, so that it cannot "
                                                              "be run once more without the policy");
  else if (config_.falls_back) {
    Result<Report> plain = run_plain(compiler_, signals_);
    if (!plain)
      return std::move(plain.error());
    report_.status = plain->status;
    report_.fallback = Fallback{error.message, error.code, 0, started_};
    return {};
  }
  report_.status = failed_status;
  report_.error = std::move(error);
  return {};
}

} // namespace

Result<Report> run_compiler(const Config &config, const Compiler &compiler, Signals &signals) {
  const Clock::time_point begun = Clock::now();
  Result<Report> report = Host(config, compiler, signals).run();
  if (!report)
    return report;
  report->seconds = seconds_since(begun);
  if (Failure interrupted = report_outcome(*report, config, {config.timeout, &signals}))
    return std::move(*interrupted);
  return report;
}

Result<Report> run_plain(const Compiler &compiler, Signals &signals) {
  const Clock::time_point begun = Clock::now();
  Result<Process> process = Process::start(compiler.command(), signals);
  if (!process)
    return std::move(process.error());
  if (Failure interrupted = process->await(signals))
    return std::move(*interrupted);
  Report report;
  report.status = process->reap();
  report.seconds = seconds_since(begun);
  return report;
}

} // namespace policybridge
