#ifndef POLICYBRIDGE_GRPC_ACCESS_H
#define POLICYBRIDGE_GRPC_ACCESS_H

#include "policybridge/connection.h"

#include <memory>
#include <string>

#include <grpcpp/client_context.h>
#include <grpcpp/security/credentials.h>

namespace policybridge {

/// Credentials and metadata of the calls to one server.
class Access {
public:
  /// Read the files of `given`; an empty path is that of the environment variable. InvalidArgument: a file cannot be
  /// read, a certificate has no key, or others could read the token on its way to `target`.
  static Result<Access> of(const Credentials &given, const std::string &target, bool secure);

  /// For the channel.
  const std::shared_ptr<::grpc::ChannelCredentials> &channel() const { return channel_; }

  /// Add the token, if there is one.
  void show(::grpc::ClientContext &call) const;

private:
  std::shared_ptr<::grpc::ChannelCredentials> channel_;
  std::string authorization_;
};

} // namespace policybridge

#endif
