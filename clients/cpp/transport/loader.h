#ifndef POLICYBRIDGE_TRANSPORT_LOADER_H
#define POLICYBRIDGE_TRANSPORT_LOADER_H

#include "policybridge/connection.h"

namespace policybridge {

/// As `connect_grpc`, by policybridge-grpc.so, which is loaded when the connection is first used: from the folder of the
/// shared object that asks for it, or from lib and lib/policybridge beside the folder of the program that does.
///
/// Where it cannot be loaded, every use of the connection is Unavailable, so that of several servers the next is tried.
Result<std::shared_ptr<Connection>> load_grpc(std::string_view target, const ConnectOptions &options);

/// The same for `connect_grpcs`.
Result<std::shared_ptr<Connection>> load_grpcs(std::string_view target, const ConnectOptions &options);

/// Load policybridge-grpc.so now, if this has not been done. Unavailable: it cannot be loaded.
Status load_grpc_part();

/// Whether policybridge-grpc.so is where these look for it.
bool has_grpc_module();

/// For `ConnectOptions::schemes`.
inline constexpr Scheme loaded_grpcs_scheme{"grpcs", load_grpcs};
inline constexpr Scheme loaded_grpc_scheme{"grpc", load_grpc};

} // namespace policybridge

#endif
