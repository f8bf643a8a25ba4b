#include "server_session.h"

#include "loader.h"
#include "trace_context.h"

#include <chrono>
#include <utility>

namespace policybridge::plugin {

void ServerSession::remember(const Status &failure) const { settings_.outage().remember(failure); }

Status ServerSession::reach() {
  if (connection_)
    return {};
  if (settings_.early) {
    if (Status reported = settings_.outage().check(); !reported.ok())
      return reported;
    if (settings_.early->take()) {
      early_ = settings_.early;
      return reach(early_);
    }
  }
  ConnectOptions options;
  options.timeout = settings_.timeout;
  options.schemes = {loaded_grpc_scheme, loaded_grpcs_scheme};
  auto connection = connect(settings_.server, options);
  if (!connection.ok())
    return connection.status();
  if (Status reported = settings_.outage().check(); !reported.ok())
    return reported;
  return reach(*connection);
}

Status ServerSession::reach(std::shared_ptr<Connection> connection) {
  Status reached = connection->check();
  remember(reached);
  if (reached.ok())
    connection_ = std::move(connection);
  return reached;
}

Result<OpenOptions> ServerSession::options(bool several_kinds, std::shared_ptr<RecordCounts> records) const {
  auto policy = PolicyReference::parse(settings_.policy);
  if (!policy.ok())
    return policy.status();
  OpenOptions options{*policy, context_, settings_.options, settings_.labels, {}};
  if (settings_.exploration)
    options.exploration = settings_.exploration->of_module(context_);
  options.several_kinds = several_kinds;
  options.evaluate = settings_.evaluate;
  options.spool = settings_.spool;
  options.records = std::move(records);
  options.labels.insert(labels_.begin(), labels_.end());
  add_trace_context(options.labels);
  return options;
}

void ServerSession::expect(bool several_kinds, const char *kind) {
  Result<OpenOptions> expected = options(several_kinds, nullptr);
  if (settings_.early && expected.ok() && expected->check().ok())
    settings_.early->expect(*std::move(expected), kind);
}

Status ServerSession::open(const std::vector<TensorSpec> &features, const char *advice, Statistics &statistics,
                           bool several_kinds) {
  Result<OpenOptions> options = this->options(several_kinds, statistics.records);
  if (!options.ok())
    return options.status();
  auto runner = ModelRunner::open(connection_, *std::move(options), features, TensorSpec::of<std::int64_t>(advice));
  if (!runner.ok())
    return runner.status();
  runner_ = std::move(*runner);
  if (auto session = runner_->session(); session.ok()) {
    statistics.policy = session->policy;
    statistics.sessions.push_back(session->id);
    kinds_ = session->decides;
    for (const auto &[kind, reason] : session->outside)
      statistics.outside[kind].reason = reason;
  }
  return {};
}

Result<std::int64_t> ServerSession::evaluate() {
  if (Status status = patience_.check(); !status.ok())
    return status;
  const auto begun = std::chrono::steady_clock::now();
  Result<std::int64_t> advice = runner_->evaluate<std::int64_t>();
  patience_.count(std::chrono::steady_clock::now() - begun);
  return advice;
}

void ServerSession::fail(const Status &failure) {
  remember(failure);
  close();
}

void ServerSession::finish(const Outcome &outcome, std::function<void()> then) {
  if (const auto early = std::exchange(early_, nullptr)) {
    connection_.reset();
    return early->finish(std::move(runner_), outcome, std::move(then));
  }
  // The status is ignored: most servers keep no ledger.
  (void)runner_->conclude(outcome);
  close();
  if (then)
    then();
}

void ServerSession::close() {
  runner_.reset();
  connection_.reset();
  if (early_)
    early_->end();
  early_.reset();
}

} // namespace policybridge::plugin
