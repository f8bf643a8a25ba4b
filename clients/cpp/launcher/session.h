#pragma once

#include "arguments.h"
#include "error.h"
#include "wire.h"

#include <cstdint>
#include <string>
#include <sys/uio.h>
#include <vector>

namespace policybridge {

/// The exact version that answers.
struct PolicyVersion {
  std::string name;
  std::int64_t version = 0;
  std::string digest;
};

/// One session over the server's Unix socket (proto/SOCKET.md), each on a connection of its own.
class Session {
public:
  /// Opens one; whether the features fit the policy comes out at the first observation.
  static Result<Session> open(const Config &config, const PolicyReference &policy, const Labels &labels,
                              Patience patience);

  const std::string &id() const { return id_; }
  const PolicyVersion &policy() const { return policy_; }

  /// Asks for one decision, `size` bytes into `advice`. Whatever the error, the session is over.
  Failure evaluate(iovec *pieces, std::size_t count, char *advice, std::size_t size);

private:
  explicit Session(Wire wire) : wire_(std::move(wire)) {}
  Failure begin(std::string_view hello);
  Error failure(std::string_view after_status);

  Wire wire_;
  std::string id_;
  PolicyVersion policy_;
  std::vector<char> reply_;
};

/// Reports what the compilation of a session came to; nothing depends on whether that arrives. A Signal error where
/// one comes meanwhile.
Failure report(const std::string &path, const std::string &line, Patience patience);

} // namespace policybridge
