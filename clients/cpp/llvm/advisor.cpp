#include "advisor.h"

#include "llvm/Config/llvm-config.h"

#include <chrono>
#include <cstring>

namespace policybridge::plugin {

using Clock = std::chrono::steady_clock;

bool Advisor::connect_to_server() {
  Status &failure = report_.statistics.failure;
  if (!connection_ && failure.ok())
    failure = reach();
  return failure.ok();
}

Status Advisor::reach() {
  ConnectOptions options;
  options.timeout = settings_.timeout;
  auto connection = connect(settings_.server, options);
  if (!connection.ok())
    return connection.status();
  connection_ = *connection;
  return connection_->check();
}

bool Advisor::decide(llvm::ArrayRef<Feature> features) {
  Statistics &statistics = report_.statistics;
  if (!runner_ && connect_to_server())
    statistics.failure = open(features);
  if (statistics.failure.ok()) {
    const Result<bool> inlines = evaluate(features);
    if (inlines.ok())
      return *inlines;
    statistics.failure = inlines.status();
  }
  ++statistics.defaults;
  return features.back().words.front() != 0;
}

Status Advisor::open(llvm::ArrayRef<Feature> features) {
  auto policy = PolicyReference::parse(settings_.policy);
  if (!policy.ok())
    return policy.status();
  OpenOptions options{*policy, module_, settings_.options, settings_.labels, {}};
  options.labels.insert({"client", "policybridge-inliner-" LLVM_VERSION_STRING});
  std::vector<TensorSpec> specs;
  for (const Feature &feature : features)
    specs.push_back(feature.spec);
  auto runner = ModelRunner::open(connection_, options, specs, TensorSpec::of<std::int64_t>("inlining_decision"));
  if (!runner.ok())
    return runner.status();
  runner_ = std::move(*runner);
  if (auto session = runner_->session(); session.ok()) {
    report_.statistics.policy = session->policy;
    report_.statistics.sessions.push_back(session->id);
  }
  return Status();
}

Result<bool> Advisor::evaluate(llvm::ArrayRef<Feature> features) {
  for (std::size_t index = 0; index < features.size(); ++index)
    std::memcpy(runner_->tensor(index)->raw(), features[index].words.data(), features[index].spec.byte_size());
  const auto begun = Clock::now();
  const Result<std::int64_t> advice = runner_->evaluate<std::int64_t>();
  if (!advice.ok())
    return advice.status();
  // LLVM takes any value but 0 for "inline".
  const bool inlines = *advice != 0;
  report_.statistics.count(inlines, Clock::now() - begun);
  return inlines;
}

void Advisor::finish() {
  if (!runner_)
    return;
  // A server that failed a moment ago is not waited for again. The status is ignored: most servers keep no ledger.
  if (report_.statistics.failure.ok())
    (void)runner_->report_outcome(report_.to_outcome());
  runner_->close();
}

} // namespace policybridge::plugin
