// The shared object policybridge-grpc.so: the library's connections over gRPC, for what loads them.

#include "grpc_module.h"

#include "policybridge/grpc.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include <grpc/support/log.h>

namespace {

using namespace policybridge;

void drop(gpr_log_func_args *) {}

/// Whether this process may have as many threads as gRPC starts, which grows with the cores. gRPC does not look, and
/// waits for ever for those that it could not start.
Status check_threads() {
  const unsigned count = std::clamp(std::thread::hardware_concurrency(), 2U, 32U) + 6;
  std::promise<void> go;
  const std::shared_future<void> started = go.get_future().share();
  std::vector<std::thread> threads;
  Status status;
  try {
    while (threads.size() < count)
      threads.emplace_back([started] { started.wait(); });
  } catch (const std::exception &) {
    status = unavailable("gRPC needs up to " + std::to_string(count) + " threads, and this process may start only " +
                         std::to_string(threads.size()));
  }
  go.set_value();
  for (std::thread &thread : threads)
    thread.join();
  return status;
}

Result<std::shared_ptr<Connection>> connected(std::string_view target, const ConnectOptions &options, bool secure) {
  if (Status status = check_threads(); !status.ok())
    return status;
  // What fails is told by the compiler that asked, in one line. gRPC's own lines on standard error would be the
  // compiler's, which configure scripts and builds with -Werror read.
  if (!std::getenv("GRPC_VERBOSITY"))
    gpr_set_log_function(drop);
  return secure ? connect_grpcs(target, options) : connect_grpc(target, options);
}

} // namespace

extern "C" const GrpcModule policybridge_grpc_module;
const GrpcModule policybridge_grpc_module = {POLICYBRIDGE_BUILD, connected};
