#include "server_session.h"

#include "loader.h"
#include "trace_context.h"

#include <chrono>

namespace policybridge::plugin {

Outage ServerSession::outage() const {
  const auto policy = PolicyReference::parse(settings_.policy);
  return Outage(settings_.server, policy.ok() ? *policy : PolicyReference{},
                Outage::Time(settings_.default_stands_in ? settings_.retry_after : 0));
}

void ServerSession::remember(const Status &failure) const { outage().remember(failure); }

Status ServerSession::reach() {
  if (connection_)
    return {};
  ConnectOptions options;
  options.timeout = settings_.timeout;
  options.schemes = {loaded_grpc_scheme, loaded_grpcs_scheme};
  auto connection = connect(settings_.server, options);
  if (!connection.ok())
    return connection.status();
  if (Status reported = outage().check(); !reported.ok())
    return reported;
  Status reached = (*connection)->check();
  remember(reached);
  if (reached.ok())
    connection_ = *connection;
  return reached;
}

Status ServerSession::open(const std::vector<TensorSpec> &features, const char *advice, Statistics &statistics,
                           bool several_kinds) {
  auto policy = PolicyReference::parse(settings_.policy);
  if (!policy.ok())
    return policy.status();
  OpenOptions options{*policy, context_, settings_.options, settings_.labels, {}};
  if (settings_.exploration)
    options.exploration = settings_.exploration->of_module(context_);
  options.several_kinds = several_kinds;
  options.evaluate = settings_.evaluate;
  options.spool = settings_.spool;
  options.records = statistics.records;
  options.labels.insert(labels_.begin(), labels_.end());
  add_trace_context(options.labels);
  auto runner = ModelRunner::open(connection_, options, features, TensorSpec::of<std::int64_t>(advice));
  if (!runner.ok())
    return runner.status();
  runner_ = std::move(*runner);
  if (auto session = runner_->session(); session.ok()) {
    statistics.policy = session->policy;
    statistics.sessions.push_back(session->id);
    kinds_ = session->decides;
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

void ServerSession::finish(const Outcome &outcome) {
  // The status is ignored: most servers keep no ledger.
  (void)runner_->report_outcome(outcome);
  close();
}

void ServerSession::close() {
  runner_.reset();
  connection_.reset();
}

} // namespace policybridge::plugin
