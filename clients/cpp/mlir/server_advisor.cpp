#include "advisor.h"

#include "server_session.h"

#include "llvm/Config/llvm-config.h"

#include <algorithm>

namespace policybridge::plugin {
namespace {

/// Advises by a session with a server.
class ServerAdvisor final : public Advisor {
public:
  ServerAdvisor(const Settings &settings, const std::string &module)
      : session_(settings, module, "policybridge-mlir-" LLVM_VERSION_STRING,
                 {{"llvm", std::to_string(LLVM_VERSION_MAJOR)}}) {}

  Status open() override;
  Status set_site(const std::string &site) override { return session_.runner().set_context(site); }
  Result<std::int64_t> ask(const Question &question) override;
  void fail(Status failure) override;
  void finish(const Outcome &outcome) override;

private:
  ServerSession session_;
};

Status ServerAdvisor::open() {
  if (Status reached = session_.reach(); !reached.ok())
    return reached;
  return session_.open(features_of_question(), advice_name, statistics());
}

Result<std::int64_t> ServerAdvisor::ask(const Question &question) {
  ModelRunner &runner = session_.runner();
  const std::int64_t *next = question.data();
  for (std::size_t index = 0; index < runner.feature_count(); ++index) {
    const std::size_t count = runner.tensor(index)->count();
    std::copy_n(next, count, runner.feature<std::int64_t>(index));
    next += count;
  }
  return session_.evaluate();
}

void ServerAdvisor::fail(Status failure) {
  session_.fail(failure);
  statistics().failure = std::move(failure);
}

void ServerAdvisor::finish(const Outcome &outcome) {
  if (session_.is_open())
    session_.finish(outcome);
}

} // namespace

std::unique_ptr<Advisor> make_advisor(const Settings &settings, const std::string &module) {
  return std::make_unique<ServerAdvisor>(settings, module);
}

bool has_own_policy() { return false; }

const char *plugin_version() { return LLVM_VERSION_STRING; }

} // namespace policybridge::plugin
