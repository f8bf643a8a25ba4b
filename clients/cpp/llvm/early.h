#ifndef POLICYBRIDGE_LLVM_EARLY_H
#define POLICYBRIDGE_LLVM_EARLY_H

#include "early_connection.h"
#include "server_settings.h"

#include <memory>

namespace policybridge::plugin {

/// Begin to reach the server, if the words of this process are those of a clang that compiles with optimisation, and they
/// or the environment name a server that is far, or one on this machine whose policy the compiler may evaluate. Returns
/// whether it has begun.
bool begin_early();

/// The connection that `begin_early` began, if it is the one of these settings. Else it is given up; null: no server is
/// asked.
std::shared_ptr<EarlyConnection> early_connection(const ServerSettings *settings);

} // namespace policybridge::plugin

#endif
