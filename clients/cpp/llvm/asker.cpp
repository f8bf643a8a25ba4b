#include "asker.h"

#include "llvm/Config/llvm-config.h"

#include <chrono>
#include <cstring>

namespace policybridge::plugin {

using Clock = std::chrono::steady_clock;

bool Asker::can_ask() {
  if (!connection_ && statistics_.failure.ok())
    statistics_.failure = reach();
  return statistics_.failure.ok();
}

Status Asker::reach() {
  ConnectOptions how;
  how.timeout = settings_.timeout;
  auto connection = connect(settings_.server, how);
  if (!connection.ok())
    return connection.status();
  connection_ = *connection;
  return connection_->check();
}

bool Asker::decide(llvm::ArrayRef<Feature> features) {
  if (!runner_ && can_ask())
    statistics_.failure = open(features);
  if (statistics_.failure.ok())
    return ask(features);
  ++statistics_.defaults;
  return features.back().words.front() != 0;
}

Status Asker::open(llvm::ArrayRef<Feature> features) {
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
  if (auto session = runner_->session(); session.ok())
    statistics_.session = *session;
  return Status();
}

bool Asker::ask(llvm::ArrayRef<Feature> features) {
  for (std::size_t index = 0; index < features.size(); ++index)
    std::memcpy(runner_->tensor(index)->raw(), features[index].words.data(), features[index].spec.byte_size());
  const auto begun = Clock::now();
  const Result<std::int64_t> advice = runner_->evaluate<std::int64_t>();
  if (!advice.ok()) {
    statistics_.failure = advice.status();
    ++statistics_.defaults;
    return features.back().words.front() != 0;
  }
  statistics_.latencies.push_back(static_cast<std::uint64_t>((Clock::now() - begun) / std::chrono::nanoseconds(1)));
  // LLVM takes any value but 0 for "inline".
  const bool inlines = *advice != 0;
  ++statistics_.advice[inlines];
  return inlines;
}

void Asker::finish() {
  if (!runner_)
    return;
  // Who did not answer a moment ago would only be waited for once more. Nothing depends on the report: most servers
  // keep no ledger.
  if (statistics_.failure.ok())
    (void)runner_->report_outcome(statistics_.to_outcome());
  runner_->close();
}

} // namespace policybridge::plugin
