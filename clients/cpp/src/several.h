#ifndef POLICYBRIDGE_SRC_SEVERAL_H
#define POLICYBRIDGE_SRC_SEVERAL_H

#include "policybridge/connection.h"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace policybridge {

/// The addresses of a list: after a comma, each begins with a name of which `is_scheme` holds, and a colon. Any other
/// comma is part of an address.
std::vector<std::string> split_addresses(std::string_view text, const std::function<bool(std::string_view)> &is_scheme);

/// One of several servers.
struct Server {
  /// As `connect` takes it.
  std::string address;
  /// The path of a server's socket, empty for servers of other schemes.
  std::string socket;
  std::shared_ptr<Connection> connection;
};

/// A connection to the first of several servers that answers; sockets that this machine has come before all others.
/// A session stays with its server.
class SeveralServers final : public Connection {
public:
  explicit SeveralServers(std::vector<Server> servers);

  Result<std::unique_ptr<Session>> open(const OpenOptions &options, const Signature &signature) override;
  Status check() override;
  Status report_outcome(const std::string &session_id, const Outcome &outcome) override;

private:
  template <class Answer> Answer first(const PolicyReference &policy, const std::function<Answer(Connection &)> &ask);

  std::vector<Server> servers_;
};

} // namespace policybridge

#endif
