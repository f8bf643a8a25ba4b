#include "early_connection.h"

#include "guard.h"
#include "loader.h"
#include "session_forms.h"

#include <cstdint>
#include <cstdlib>
#include <sys/eventfd.h>
#include <tuple>
#include <utility>

namespace policybridge::plugin {
namespace {

using Opened = Result<std::unique_ptr<Session>>;

bool is_same(const std::optional<Exploration> &one, const std::optional<Exploration> &other) {
  const auto parts = [](const Exploration &each) { return std::tie(each.seed, each.temperature, each.epsilon); };
  return one.has_value() == other.has_value() && (!one || parts(*one) == parts(*other));
}

bool is_same(const OpenOptions &one, const OpenOptions &other) {
  const auto parts = [](const OpenOptions &each) {
    return std::tie(each.policy.name, each.policy.version, each.policy.alias, each.context, each.options, each.labels,
                    each.several_kinds, each.evaluate, each.takes_forms); // the server hears of these
  };
  return parts(one) == parts(other) && is_same(one.exploration, other.exploration);
}

bool is_away(const Status &status) {
  return status.code() == StatusCode::Unavailable || status.code() == StatusCode::DeadlineExceeded;
}

bool has_forms(const Session &session) {
  const Result<SessionInfo> info = session.info();
  return info.ok() && !info->forms.empty();
}

} // namespace

bool is_far(const std::string &server) {
  const auto has = [&](const char *part) { return server.find(part) != std::string::npos; };
  const bool is_path = has("/") && !has(":");
  return !(has("socket:") || has("pipe:") || is_path);
}

bool is_near(const std::string &server) {
  constexpr std::string_view scheme = "socket:";
  const bool is_socket = server.compare(0, scheme.size(), scheme) == 0;
  const std::string_view path = std::string_view(server).substr(is_socket ? scheme.size() : 0);
  // With a comma it may be several addresses.
  return path.find_first_of(":,") == path.npos && (is_socket || path.find('/') != path.npos);
}

std::shared_ptr<EarlyConnection> EarlyConnection::begin(const std::string &server, std::chrono::milliseconds timeout,
                                                        void (*at_exit)()) {
  Descriptor alarm(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!alarm.is_open())
    return nullptr;
  ConnectOptions options;
  options.timeout = timeout;
  options.schemes = {loaded_grpc_scheme, loaded_grpcs_scheme};
  options.interrupts = {alarm.get(), -1};
  auto made = connect(server, options);
  if (!made.ok())
    return nullptr;
  std::shared_ptr<EarlyConnection> early(
      new EarlyConnection(server, std::move(alarm), *std::move(made)));
  if (!early->worker_.start())
    return nullptr;
  early->worker_.post([self = early.get(), timeout, at_exit] { self->prepare(timeout, at_exit); });
  return early;
}

void EarlyConnection::prepare(std::chrono::milliseconds timeout, void (*at_exit)()) {
  const bool is_loaded = !is_near(server_) && load_grpc_part().ok();
  // Registered after the libraries' own functions, and so called before them.
  std::atexit(at_exit);
  const auto end = std::chrono::steady_clock::now() + timeout;
  const auto goes_on = [&] { return !is_needed_ && std::chrono::steady_clock::now() < end; };
  if (!is_loaded || connection_->prepare(goes_on))
    return;
  // The second try, which has the reason, is the last one.
  if (Status status = connection_->check(); !status.ok()) {
    reached_ = std::move(status);
    // Its threads end while the compiler works.
    connection_.reset();
  }
}

void EarlyConnection::expect(OpenOptions options, std::string kind) {
  is_needed_ = true;
  if (is_expected_.exchange(true))
    return;
  options.takes_forms = takes_forms(options.evaluate, TensorSpec::of<std::int64_t>(kind));
  worker_.post([this, given = std::move(options), kind = std::move(kind)] { open_ahead(given, kind); });
}

void EarlyConnection::open_ahead(const OpenOptions &options, const std::string &kind) {
  if (reached_)
    return;
  options_ = options;
  ahead_ = connection_->open(options, {});
  const Status &status = ahead_->ok() ? Status() : ahead_->status();
  reached_ = status.code() == StatusCode::Unavailable ? connection_->check() : is_away(status) ? status : Status();
  if (!ahead_->ok() || !options.takes_forms)
    return;
  const Result<SessionInfo> info = (**ahead_)->info();
  if (const FormReference *form = info.ok() ? form_for(*info, kind, options.evaluate, ***ahead_) : nullptr)
    form_.emplace(QueuedSession::Ahead{form->digest, guarded([&] { return read_form(***ahead_, *form); })});
}

/// Without the alarm on this machine's socket, where it costs each decision that is asked a call.
Opened EarlyConnection::asked(Opened opened) const {
  if (opened.ok() && is_near(server_))
    (*opened)->disregard_interrupts();
  return opened;
}

Status EarlyConnection::check() {
  is_needed_ = true;
  worker_.settle();
  return reached_ ? *reached_ : connection_->check();
}

Opened EarlyConnection::open(const OpenOptions &options, const Signature &signature) {
  is_needed_ = true;
  worker_.settle();
  if (!connection_)
    return *reached_;
  return guarded([&]() -> Opened {
    std::optional<Opened> ahead = std::exchange(ahead_, std::nullopt);
    if (!ahead || !is_same(options, options_)) {
      // Closed first: the server may have room for one session.
      ahead.reset();
      return asked(connection_->open(options, signature));
    }
    Opened opened = *std::move(ahead);
    if (!opened.ok())
      return opened;
    // The form that did not come ended the session, which does not say why.
    if (form_ && !form_->form.ok() && !(*opened)->is_open())
      return form_->form.status();
    if (Status status = (*opened)->bind(signature); !status.ok())
      return status;
    if (!options.takes_forms || !has_forms(**opened))
      return asked(std::move(opened));
    return std::unique_ptr<Session>(std::make_unique<QueuedSession>(worker_, *std::move(opened), std::move(form_)));
  });
}

Status EarlyConnection::report_outcome(const std::string &session_id, const Outcome &outcome) {
  worker_.settle();
  return connection_ ? connection_->report_outcome(session_id, outcome) : *reached_;
}

void EarlyConnection::finish(std::unique_ptr<ModelRunner> runner, Outcome outcome, std::function<void()> then) {
  finishes_ = true;
  worker_.post([own = std::shared_ptr<ModelRunner>(std::move(runner)), given = std::move(outcome), then = std::move(then)] {
    // The status is ignored: most servers keep no ledger.
    (void)own->conclude(given);
    if (then)
      then();
  });
}

void EarlyConnection::end() noexcept {
  constexpr std::uint64_t once = 1;
  // It fails only where the alarm is on already.
  if (!finishes_)
    (void)!write(alarm_.get(), &once, sizeof once);
  is_needed_ = true;
  worker_.join();
  ahead_.reset();
  connection_.reset();
}

} // namespace policybridge::plugin
