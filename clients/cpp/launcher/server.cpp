#include "server.h"

#ifdef POLICYBRIDGE_LAUNCHER_GRPC
#include "loader.h"
#endif

namespace policybridge {

bool reaches_grpc() {
#ifdef POLICYBRIDGE_LAUNCHER_GRPC
  return has_grpc_module();
#else
  return false;
#endif
}

Result<std::shared_ptr<Connection>> connect_server(const Config &config, const Interrupts &interrupts) {
  ConnectOptions options;
  options.timeout = config.timeout;
  options.spin = options.spin.zero();
#ifdef POLICYBRIDGE_LAUNCHER_GRPC
  options.schemes = {loaded_grpc_scheme, loaded_grpcs_scheme};
#endif
  options.credentials = config.credentials;
  options.interrupts = interrupts.descriptors();
  return connect(config.reachable, options);
}

} // namespace policybridge
