#include "advisor.h"

#include "server_session.h"

#include "llvm/Config/llvm-config.h"

#include <cstring>

namespace policybridge::plugin {

namespace {

/// Advises by a session with a server.
class ServerAdvisor final : public Advisor {
public:
  /// Nothing is sent before the first decision. `module` is the session's context.
  ServerAdvisor(const Settings &settings, std::string module)
      : session_(settings, std::move(module), "policybridge-inliner-" LLVM_VERSION_STRING) {}

  bool is_ready() override;
  void finish() override;

private:
  Status open(llvm::ArrayRef<Feature> features) override;
  Result<std::int64_t> evaluate(llvm::ArrayRef<Feature> features) override;
  void fail(Status failure) override;

  ServerSession session_;
};

bool ServerAdvisor::is_ready() {
  Status &failure = report().statistics.failure;
  if (failure.ok())
    failure = session_.reach();
  return failure.ok();
}

void ServerAdvisor::fail(Status failure) {
  session_.fail(failure);
  report().statistics.failure = std::move(failure);
}

Status ServerAdvisor::open(llvm::ArrayRef<Feature> features) {
  return session_.open(specs_of(features), "inlining_decision", report().statistics);
}

Result<std::int64_t> ServerAdvisor::evaluate(llvm::ArrayRef<Feature> features) {
  for (std::size_t index = 0; index < features.size(); ++index)
    std::memcpy(session_.runner().tensor(index)->raw(), features[index].words.data(), features[index].spec.byte_size());
  return session_.evaluate();
}

void ServerAdvisor::finish() {
  if (session_.is_open())
    session_.finish(report().to_outcome());
}

} // namespace

std::unique_ptr<Advisor> make_advisor(const Settings &settings, std::string module) {
  return std::make_unique<ServerAdvisor>(settings, std::move(module));
}

} // namespace policybridge::plugin
