#pragma once

#include "arguments.h"
#include "policybridge/connection.h"
#include "signals.h"

#include <memory>

namespace policybridge {

/// Whether this program reaches servers by gRPC. Linked statically it cannot load gRPC's libraries.
#ifdef POLICYBRIDGE_LAUNCHER_GRPC
inline constexpr bool has_grpc = true;
#else
inline constexpr bool has_grpc = false;
#endif

/// Whether gRPC's part is installed, too.
bool reaches_grpc();

/// Make a connection to the first of the servers that answers; nothing is sent. Its waits end with `interrupts`.
Result<std::shared_ptr<Connection>> connect_server(const Config &config, const Interrupts &interrupts);

} // namespace policybridge
