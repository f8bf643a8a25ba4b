#ifndef POLICYBRIDGE_TRANSPORT_GRPC_MODULE_H
#define POLICYBRIDGE_TRANSPORT_GRPC_MODULE_H

#include "policybridge/connection.h"

#include <memory>
#include <string_view>

namespace policybridge {

/// The export of the shared object policybridge-grpc.so, under the name `policybridge_grpc_module`.
struct GrpcModule {
  /// A digest of the headers below which objects are handed over. Equal in the module and in what loads it, or they do
  /// not fit. To be read before anything else.
  const char *build;
  /// `connect_grpcs` where it is secure, else `connect_grpc`.
  Result<std::shared_ptr<Connection>> (*connect)(std::string_view target, const ConnectOptions &options, bool secure);
};

} // namespace policybridge

#endif
