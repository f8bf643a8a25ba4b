#include "policybridge/model_runner.h"

#include "guard.h"
#include "local_session.h"

#include <thread>

namespace policybridge {

namespace {

std::size_t aligned(std::size_t offset, std::size_t size) { return (offset + size - 1) / size * size; }

bool is_transient(StatusCode code) { return code == StatusCode::Unavailable || code == StatusCode::DeadlineExceeded; }

/// Where each fixed feature begins in the arena: as in a packed observation, but aligned for its type.
std::vector<std::size_t> offsets_of(const std::vector<TensorSpec> &features, std::size_t &end) {
  std::vector<std::size_t> offsets;
  end = 0;
  for (const TensorSpec &spec : features) {
    if (spec.is_fixed())
      end = aligned(end, element_size(spec.type));
    offsets.push_back(end);
    end += static_cast<std::size_t>(spec.is_fixed() ? spec.byte_size() : 0);
  }
  return offsets;
}

} // namespace

ModelRunner::ModelRunner(std::shared_ptr<Connection> connection, OpenOptions options, Signature signature,
                         RunnerOptions runner)
    : connection_(std::move(connection)), options_(std::move(options)), signature_(std::move(signature)),
      runner_(std::move(runner)), advice_(signature_.advice) {
  lay_out();
}

/// Make the features of the signature, and their memory.
void ModelRunner::lay_out() {
  std::size_t end = 0;
  const std::vector<std::size_t> offsets = offsets_of(signature_.features, end);
  features_.clear();
  arena_.assign(end / sizeof(std::uint64_t) + 1, 0);
  for (std::size_t n = 0; n < offsets.size(); ++n) {
    const TensorSpec &spec = signature_.features[n];
    char *memory = reinterpret_cast<char *>(arena_.data()) + offsets[n];
    features_.emplace_back(spec, spec.is_fixed() ? memory : nullptr);
  }
  packed_size_ = static_cast<std::size_t>(signature_.observation_size());
  packed_ = signature_.has_fixed_features() && end == packed_size_;
}

ModelRunner::~ModelRunner() = default;

Result<std::unique_ptr<ModelRunner>> ModelRunner::open(std::shared_ptr<Connection> connection, OpenOptions options,
                                                       std::vector<TensorSpec> features, TensorSpec advice,
                                                       RunnerOptions runner_options) {
  using Opened = Result<std::unique_ptr<ModelRunner>>;
  return guarded([&]() -> Opened {
    if (!connection)
      return invalid_argument("a runner needs a connection; connect() makes one");
    Signature signature{std::move(features), std::move(advice)};
    if (Status status = signature.check(); !status.ok())
      return status;
    if (Status status = options.check(); !status.ok())
      return status;
    std::unique_ptr<ModelRunner> runner(
        new ModelRunner(std::move(connection), std::move(options), std::move(signature), std::move(runner_options)));
    runner->over_ = runner->start();
    if (!runner->over_.ok() && !runner->runner_.fallback)
      return runner->over_;
    return runner;
  });
}

Result<std::unique_ptr<ModelRunner>> ModelRunner::open(std::string_view address, std::string_view policy,
                                                       std::vector<TensorSpec> features, TensorSpec advice,
                                                       const ConnectOptions &connect_options,
                                                       RunnerOptions runner_options) {
  using Opened = Result<std::unique_ptr<ModelRunner>>;
  return guarded([&]() -> Opened {
    Result<PolicyReference> reference = PolicyReference::parse(policy);
    if (!reference.ok())
      return reference.status();
    Result<std::shared_ptr<Connection>> connection = connect(address, connect_options);
    if (!connection.ok())
      return connection.status();
    OpenOptions options;
    options.policy = std::move(*reference);
    return open(std::move(*connection), std::move(options), std::move(features), std::move(advice),
                std::move(runner_options));
  });
}

std::optional<std::size_t> ModelRunner::index_of(std::string_view name) const noexcept {
  for (std::size_t n = 0; n < features_.size(); ++n)
    if (features_[n].spec().name == name)
      return n;
  return std::nullopt;
}

Result<const Tensor *> ModelRunner::evaluate() {
  Status status = guarded([&] { return request(); });
  if (!status.ok())
    return runner_.fallback ? fall_back(over_.ok() ? status : over_) : status;
  ++counts_.decisions;
  return &advice_;
}

Status ModelRunner::check_scalar(ElementType type) const {
  const TensorSpec &spec = advice_.spec();
  if (spec.type == type && spec.is_fixed() && spec.count() == 1)
    return {};
  return invalid_argument("the advice is " + spec.to_string() + " and no single " + to_string(type));
}

/// Open a session; retry where the server is unavailable, because it may be starting.
Status ModelRunner::start() {
  auto pause = runner_.pause;
  for (unsigned tries = 0;; ++tries, pause *= 2) {
    Result<std::unique_ptr<Session>> opened = open_session(*connection_, options_, signature_);
    if (opened.ok()) {
      session_ = std::move(*opened);
      step_ = 0;
      return {};
    }
    if (opened.status().code() != StatusCode::Unavailable || tries == runner_.retries)
      return opened.status();
    std::this_thread::sleep_for(pause);
  }
}

Status ModelRunner::request() {
  if (!over_.ok())
    return failed_precondition("the session is over: " + over_.message());
  Status status = request_once();
  if (!status.ok() && is_transient(status.code()))
    status = retry(std::move(status));
  if (!session_->is_open())
    over_ = status;
  return status;
}

Status ModelRunner::request_once() {
  std::string_view observation;
  if (Status status = observe(observation); !status.ok())
    return status;
  if (Status status = session_->evaluate(step_ + 1, observation, buffer_); !status.ok())
    return status;
  ++step_;
  Status status = decode();
  // A server whose advice cannot be read gets no further request.
  if (!status.ok())
    session_->close();
  return status;
}

Status ModelRunner::retry(Status failed) {
  auto pause = runner_.pause;
  for (unsigned tries = 0; tries < runner_.retries && is_transient(failed.code()); ++tries, pause *= 2) {
    if (!session_->is_open()) {
      if (!runner_.reopen || failed.code() != StatusCode::Unavailable)
        return failed;
      if (Status status = reopen(); !status.ok())
        return failed;
    } else {
      std::this_thread::sleep_for(pause);
    }
    ++counts_.retries;
    failed = request_once();
  }
  return failed;
}

/// Replace the lost session by a new one on the same version.
Status ModelRunner::reopen() {
  Result<SessionInfo> lost = session_->info();
  if (!lost.ok())
    return lost.status();
  options_.policy.version = lost->policy.version;
  options_.policy.alias.reset();
  Status status = start();
  if (status.ok())
    ++counts_.reopened;
  return status;
}

/// Give the observation's bytes, without copying where the features lie packed in the arena.
Status ModelRunner::observe(std::string_view &observation) {
  if (packed_) {
    observation = {reinterpret_cast<const char *>(arena_.data()), packed_size_};
    return {};
  }
  observation_.clear();
  for (const Tensor &feature : features_)
    if (Status status = append_session_form(feature, observation_); !status.ok())
      return status;
  observation = {observation_.data(), observation_.size()};
  return {};
}

Status ModelRunner::decode() {
  std::string_view bytes(buffer_.bytes.data(), buffer_.bytes.size());
  if (Status status = read_session_form(bytes, advice_); !status.ok())
    return status;
  if (!bytes.empty())
    return invalid_argument(std::to_string(bytes.size()) + " bytes follow the advice " + advice_.spec().to_string());
  return {};
}

Result<const Tensor *> ModelRunner::fall_back(const Status &why) {
  buffer_.log_probability.reset();
  Status status = guarded([&] { return runner_.fallback(why, advice_); });
  if (!status.ok())
    return status;
  ++counts_.fallbacks;
  return &advice_;
}

Status ModelRunner::bind(std::vector<TensorSpec> features, TensorSpec advice) {
  return guarded([&]() -> Status {
    Signature signature{std::move(features), std::move(advice)};
    if (Status status = signature.check(); !status.ok())
      return status;
    if (session_ && over_.ok())
      if (Status status = session_->bind(signature); !status.ok())
        return status;
    signature_ = std::move(signature);
    advice_ = Tensor(signature_.advice);
    lay_out();
    return {};
  });
}

Status ModelRunner::set_context(std::string_view name) {
  return guarded([&]() -> Status {
    if (session_ && over_.ok())
      if (Status status = session_->set_context(name); !status.ok())
        return status;
    options_.context = name; // for a session that follows this one
    return {};
  });
}

Status ModelRunner::report_outcome(const Outcome &outcome) {
  return guarded([&]() -> Status {
    if (Status status = outcome.check(); !status.ok())
      return status;
    if (!over_.ok())
      return failed_precondition("the session is over: " + over_.message());
    Status status = session_->report(outcome);
    if (!session_->is_open())
      over_ = status;
    return status;
  });
}

Status ModelRunner::conclude(const Outcome &outcome) {
  return guarded([&]() -> Status {
    if (Status status = outcome.check(); !status.ok())
      return status;
    if (!over_.ok())
      return failed_precondition("the session is over: " + over_.message());
    Status status = session_->conclude(outcome);
    close();
    return status;
  });
}

Result<SessionInfo> ModelRunner::session() const { return session_ ? session_->info() : Result<SessionInfo>(over_); }

Result<PolicyVersion> ModelRunner::policy() const {
  Result<SessionInfo> info = session();
  if (!info.ok())
    return info.status();
  return std::move(info->policy);
}

void ModelRunner::close() noexcept {
  if (session_)
    session_->close();
  if (over_.ok())
    over_ = Status(StatusCode::FailedPrecondition, "it was closed");
}

} // namespace policybridge
