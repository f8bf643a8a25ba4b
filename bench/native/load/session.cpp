#include "clients.h"

#include "policybridge/connection.h"
#ifdef POLICYBRIDGE_BENCH_GRPC
#include "policybridge/grpc.h"
#endif

#include <chrono>
#include <utility>

namespace bench {

using policybridge::Result;
using policybridge::Status;

namespace {

class SessionClient final : public Client {
public:
  SessionClient(std::shared_ptr<policybridge::Connection> connection, std::unique_ptr<policybridge::Session> session,
               Messages messages)
      : connection_(std::move(connection)), session_(std::move(session)), messages_(std::move(messages)) {}

  Status ask(std::size_t number) override {
    return session_->evaluate(++step_, messages_.messages[number % messages_.messages.size()], advice_);
  }

private:
  std::shared_ptr<policybridge::Connection> connection_;
  std::unique_ptr<policybridge::Session> session_;
  Messages messages_;
  policybridge::AdviceBuffer advice_;
  std::uint64_t step_ = 0;
};

} // namespace

Made make_session(const Options &options, Messages messages) {
  policybridge::ConnectOptions how;
  how.timeout = std::chrono::seconds(30);
#ifdef POLICYBRIDGE_BENCH_GRPC
  how.schemes.push_back(policybridge::grpc_scheme);
#endif
  Result<std::shared_ptr<policybridge::Connection>> connection = policybridge::connect(options.address, how);
  if (!connection)
    return connection.status();
  policybridge::OpenOptions opening;
  opening.policy.name = options.policy;
  Result<std::unique_ptr<policybridge::Session>> session = connection.value()->open(opening, messages.signature);
  if (!session)
    return session.status();
  return Made(std::make_unique<SessionClient>(*std::move(connection), *std::move(session), std::move(messages)));
}

} // namespace bench
