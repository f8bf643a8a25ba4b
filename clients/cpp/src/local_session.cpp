#include "local_session.h"

#include "bound_form.h"
#include "guard.h"
#include "session_forms.h"
#include "spool.h"
#include "utf8.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace policybridge {

namespace {

using Clock = std::chrono::steady_clock;

/// Bytes of decisions that are reported together.
constexpr std::size_t report_at = std::size_t{32} << 10;

/// Decisions that wait to be reported.
struct Report {
  std::string observations;
  std::string advices;
  std::string chances;
  std::uint32_t count = 0;
  std::chrono::nanoseconds time{};

  bool is_full() const {
    return count == Session::most_decided || observations.size() + advices.size() >= report_at;
  }
};

/// See `open_session`.
class LocalSession final : public Session {
public:
  LocalSession(std::unique_ptr<Session> server, SessionInfo info, const OpenOptions &options)
      : server_(std::move(server)), info_(std::move(info)), evaluate_(options.evaluate),
        exploration_(options.exploration), record_(info_, options) {}
  ~LocalSession() override { close(); }

  /// Take the signature of the next observations. FailedPrecondition: no form decides on it, and the server may not be
  /// asked.
  Status turn_to(const Signature &signature);

  Result<SessionInfo> info() const override { return info_; }
  Status evaluate(std::uint64_t step, std::string_view observation, AdviceBuffer &advice) override;
  Status bind(const Signature &signature) override;
  Status set_context(std::string_view name) override;
  Status report(const Outcome &outcome) override;
  Status conclude(const Outcome &outcome) override;
  bool is_open() const noexcept override { return is_open_ && (bound_ || server_->is_open()); }
  void close() noexcept override;

private:
  bool may_ask() const noexcept { return evaluate_ == Evaluate::Auto; }
  Result<std::optional<Form>> form_of(const Signature &signature);
  Status ask(std::string_view observation, AdviceBuffer &advice);
  Status decide(std::string_view observation, AdviceBuffer &advice);
  Status send();
  Status note(const Outcome &outcome);

  const std::unique_ptr<Session> server_;
  const SessionInfo info_;
  const Evaluate evaluate_;
  const std::optional<Exploration> exploration_;
  bool is_open_ = true;
  std::uint64_t asked_ = 0;
  std::uint64_t decided_ = 0; // here
  std::map<std::string, std::optional<Form>> forms_; // by the digest
  std::optional<BoundForm> bound_;
  Report report_;
  Status lost_; // why the server gets no further decisions
  Record record_;
};

Status LocalSession::turn_to(const Signature &signature) {
  bound_.reset();
  record_.note_signature(signature);
  Result<std::optional<Form>> form = form_of(signature);
  if (!form.ok())
    return form.status();
  if (form->has_value())
    bound_ = BoundForm::bind(**form, signature);
  if (bound_ || may_ask())
    return {};
  return failed_precondition(info_.policy.name + "@" + std::to_string(info_.policy.version) +
                             " has no portable form that decides on " + signature.advice.to_string() +
                             "; let the server decide (evaluate auto or there)");
}

/// Nothing if there is none that is taken, or if this client cannot read it.
Result<std::optional<Form>> LocalSession::form_of(const Signature &signature) {
  const FormReference *found = form_for(info_, signature.advice.name, evaluate_, *server_);
  if (!found || !takes_forms(evaluate_, signature.advice))
    return std::optional<Form>();
  const auto known = forms_.find(found->digest);
  if (known != forms_.end())
    return known->second;
  std::optional<Result<std::optional<Form>>> ahead = server_->form_ahead(found->digest);
  Result<std::optional<Form>> form = ahead ? *std::move(ahead) : read_form(*server_, *found);
  // A server that still answers is asked for the decisions.
  if (!form.ok() && may_ask() && server_->is_open())
    form = std::optional<Form>();
  if (form.ok())
    forms_.emplace(found->digest, *form);
  return form;
}

Status LocalSession::evaluate(std::uint64_t, std::string_view observation, AdviceBuffer &advice) {
  if (!is_open())
    return failed_precondition("the session is over");
  if (!bound_)
    return ask(observation, advice);
  return guarded([&]() -> Status {
    Status status = decide(observation, advice);
    // The policy fails at the server, too, which counts it and says why.
    if (!status.ok() && may_ask() && send().ok() && lost_.ok())
      status = ask(observation, advice);
    if (!status.ok())
      close();
    return status;
  });
}

Status LocalSession::ask(std::string_view observation, AdviceBuffer &advice) {
  record_.give_up();
  // The server counts what it is asked alone.
  Status status = server_->evaluate(asked_ + 1, observation, advice);
  asked_ += status.ok();
  return status;
}

Status LocalSession::decide(std::string_view observation, AdviceBuffer &advice) {
  const Clock::time_point begun = Clock::now();
  if (Status status = bound_->decide(observation, exploration_, asked_ + decided_ + 1, advice); !status.ok())
    return status;
  ++decided_;
  if (advice.log_probability)
    report_.chances.append(reinterpret_cast<const char *>(&*advice.log_probability), sizeof(float));
  report_.time += Clock::now() - begun;
  report_.observations.append(observation);
  report_.advices.append(advice.bytes.data(), advice.bytes.size());
  ++report_.count;
  return report_.is_full() ? send() : Status();
}

/// Report the decisions so far. A server that is gone costs their record, and not the compilation.
Status LocalSession::send() {
  if (report_.count) {
    report_.observations.append(report_.advices).append(report_.chances);
    record_.add_decisions(report_.count, report_.time, report_.observations);
  }
  if (report_.count && lost_.ok()) {
    lost_ = server_->decided(report_.count, report_.time, report_.observations);
  }
  report_.observations.clear();
  report_.advices.clear();
  report_.chances.clear();
  report_.count = 0;
  report_.time = {};
  return {};
}

Status LocalSession::bind(const Signature &signature) {
  return guarded([&]() -> Status {
    if (Status status = send(); !status.ok())
      return status;
    // First, because a request for the form takes along what waits to be sent.
    Status status = server_->bind(signature);
    if (Status turned = turn_to(signature); !turned.ok())
      return turned;
    if (!bound_)
      return status;
    if (lost_.ok())
      lost_ = status;
    return {};
  });
}

Status LocalSession::set_context(std::string_view name) {
  return guarded([&]() -> Status {
    if (!is_utf8(name))
      return invalid_argument("a context's name is not UTF-8: " + quoted(name));
    if (Status status = send(); !status.ok())
      return status;
    record_.note_context(name);
    Status status = lost_.ok() ? server_->set_context(name) : lost_;
    if (!bound_)
      return status;
    lost_ = std::move(status);
    return {};
  });
}

Status LocalSession::note(const Outcome &outcome) {
  return guarded([&] {
    Status status = send();
    record_.add_outcome(outcome);
    return status;
  });
}

Status LocalSession::conclude(const Outcome &outcome) {
  if (Status status = note(outcome); !status.ok())
    return status;
  if (lost_.ok()) {
    lost_ = server_->conclude(outcome);
    if (lost_.ok())
      record_.settle();
  }
  close();
  return lost_;
}

Status LocalSession::report(const Outcome &outcome) {
  if (Status status = note(outcome); !status.ok())
    return status;
  if (!lost_.ok())
    return lost_;
  Status status = server_->report(outcome);
  if (!server_->is_open())
    lost_ = status;
  if (status.ok())
    record_.settle();
  return status;
}

void LocalSession::close() noexcept {
  if (!std::exchange(is_open_, false))
    return;
  (void)guarded([&] { return send(); });
  record_.finish(*server_, lost_);
  server_->close();
}

/// OutOfRange: the only kind of the session's decisions is not for its labels.
Status check_scope(const Session &session, const OpenOptions &options, const std::string &kind) {
  const Result<SessionInfo> info = session.info();
  if (options.several_kinds || !info.ok())
    return {};
  const auto outside = info->outside.find(kind);
  return outside == info->outside.end() ? Status() : Status(StatusCode::OutOfRange, outside->second);
}

} // namespace

Result<std::unique_ptr<Session>> open_session(Connection &connection, const OpenOptions &options,
                                              const Signature &signature) {
  using Opened = Result<std::unique_ptr<Session>>;
  OpenOptions told = options;
  told.takes_forms = takes_forms(options.evaluate, signature.advice);
  Opened opened = connection.open(told, signature);
  if (!opened.ok())
    return opened;
  if (Status status = check_scope(**opened, options, signature.advice.name); !status.ok())
    return status;
  if (!told.takes_forms)
    return opened;
  return guarded([&]() -> Opened {
    Result<SessionInfo> info = (*opened)->info();
    if (options.evaluate == Evaluate::Auto && (!info.ok() || info->forms.empty()))
      return std::move(opened);
    if (!info.ok())
      return info.status();
    // A client that asks about several kinds opens with one that the policy may not decide; `bind` names another.
    const bool decides = info->decides.empty() || info->declares(signature.advice.name) || !options.several_kinds;
    auto session = std::make_unique<LocalSession>(std::move(*opened), *std::move(info), options);
    if (Status status = session->turn_to(signature); !status.ok() && decides)
      return status;
    return std::unique_ptr<Session>(std::move(session));
  });
}

} // namespace policybridge
