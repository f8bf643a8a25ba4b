#ifndef POLICYBRIDGE_GRPC_H
#define POLICYBRIDGE_GRPC_H

#include "policybridge/connection.h"

namespace policybridge {

/// Connect over gRPC, see proto/policybridge/v1/policy_service.proto. `target` is `HOST:PORT` or `unix:PATH`.
///
/// Sessions share one channel; each is a stream of its own. The connection starts a thread with its first session,
/// which ends every wait that is longer than the timeout.
Result<std::shared_ptr<Connection>> connect_grpc(std::string_view target, const ConnectOptions &options);

/// The same over TLS, `target` being `HOST:PORT`. The credentials are `ConnectOptions::credentials`.
Result<std::shared_ptr<Connection>> connect_grpcs(std::string_view target, const ConnectOptions &options);

/// For `ConnectOptions::schemes`.
inline constexpr Scheme grpcs_scheme{"grpcs", connect_grpcs};
inline constexpr Scheme grpc_scheme{"grpc", connect_grpc};

} // namespace policybridge

#endif
