#ifndef POLICYBRIDGE_SRC_SOCKET_H
#define POLICYBRIDGE_SRC_SOCKET_H

#include "policybridge/connection.h"
#include "unix_socket.h"

namespace policybridge {

/// A server's Unix socket (proto/SOCKET.md). Every session has a connection of its own, so that sessions share nothing.
class SocketConnection final : public Connection {
public:
  SocketConnection(std::string path, const WaitOptions &wait) : path_(std::move(path)), wait_(wait) {}

  Result<std::unique_ptr<Session>> open(const OpenOptions &options, const Signature &signature) override;
  Status check() override;
  Status report_outcome(const std::string &session_id, const Outcome &outcome) override;

private:
  const std::string path_;
  const WaitOptions wait_;
};

} // namespace policybridge

#endif
