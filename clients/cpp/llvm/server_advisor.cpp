#include "advisor.h"

#include "server_session.h"
#include "utf8.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Config/llvm-config.h"

#include <cstring>

namespace policybridge::plugin {

namespace {

constexpr const char *client = "policybridge-inliner-" LLVM_VERSION_STRING;

/// The name of a function, which may hold any bytes; where it is no UTF-8, those beyond ASCII are %XX.
std::string as_utf8(llvm::StringRef name) {
  if (is_utf8({name.data(), name.size()}))
    return name.str();
  std::string text;
  for (const unsigned char byte : name.bytes())
    text += byte < 0x80 ? std::string(1, static_cast<char>(byte)) : "%" + llvm::utohexstr(byte);
  return text;
}

/// Advises by a session with a server.
class ServerAdvisor final : public Advisor {
public:
  /// Nothing is sent before the first decision. `module` is the session's context.
  ServerAdvisor(const Settings &settings, std::string module, std::map<std::string, std::string> labels)
      : session_(settings, std::move(module), client, std::move(labels)),
        asked_(settings.decides) {}

  bool is_ready() override;
  bool may_decide(const char *kind) const override { return asked_.empty() || llvm::is_contained(asked_, kind); }
  void finish(std::function<void()> then) override;

private:
  Status open(const char *kind, llvm::ArrayRef<Feature> features) override;
  Status turn_to(const char *kind, llvm::ArrayRef<Feature> features) override;
  bool decides(const char *kind) const override;
  Status set_context(llvm::StringRef name) override;
  void forget() override;
  Result<std::int64_t> evaluate(llvm::ArrayRef<Feature> features) override;
  void fail(Status failure) override;

  ServerSession session_;
  const std::vector<std::string> &asked_; // kinds of decisions; empty: those that the policy declares
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

Status ServerAdvisor::open(const char *kind, llvm::ArrayRef<Feature> features) {
  return session_.open(specs_of(features), kind, report().statistics, true);
}

Status ServerAdvisor::turn_to(const char *kind, llvm::ArrayRef<Feature> features) {
  return session_.runner().bind(specs_of(features), TensorSpec::of<std::int64_t>(kind));
}

/// A host at the other end of a `pipe:` cannot tell the kinds.
bool ServerAdvisor::decides(const char *kind) const {
  const std::vector<std::string> &declared = session_.kinds();
  if (!may_decide(kind))
    return false;
  return declared.empty() ? !asked_.empty() || Advisor::decides(kind) : llvm::is_contained(declared, kind);
}

Status ServerAdvisor::set_context(llvm::StringRef name) {
  return session_.runner().set_context(as_utf8(name));
}

void ServerAdvisor::forget() {
  session_.close();
  report().statistics.policy.reset();
  report().statistics.sessions.clear();
}

Result<std::int64_t> ServerAdvisor::evaluate(llvm::ArrayRef<Feature> features) {
  for (std::size_t index = 0; index < features.size(); ++index)
    std::memcpy(session_.runner().tensor(index)->raw(), features[index].words.data(), features[index].bytes);
  return session_.evaluate();
}

void ServerAdvisor::finish(std::function<void()> then) {
  if (session_.is_open())
    session_.finish(report().to_outcome(), std::move(then));
  else
    then();
}

} // namespace

void expect_module(const Settings &settings, std::string module, std::map<std::string, std::string> labels) {
  if (settings.early)
    ServerSession(settings, std::move(module), client, std::move(labels)).expect(true, inlining);
}

std::unique_ptr<Advisor> make_advisor(const Settings &settings, std::string module,
                                      std::map<std::string, std::string> labels) {
  return std::make_unique<ServerAdvisor>(settings, std::move(module), std::move(labels));
}

} // namespace policybridge::plugin
