#include "runtime.h"

#include <cstdlib>

#include <dlfcn.h>

namespace policybridge {
namespace {

constexpr const char *variable = "POLICYBRIDGE_ONNXRUNTIME";

constexpr const char *hint = "; name the library by the environment variable POLICYBRIDGE_ONNXRUNTIME: in the Python "
                             "package onnxruntime it is capi/libonnxruntime.so.1.*";

// The library is never closed: its threads and static objects have to outlive every exit handler.
Result<void *> opened(const std::string &library) {
  if (void *handle = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL))
    return handle;
  return failed_precondition(std::string("ONNX Runtime cannot be opened: ") + dlerror() + hint);
}

Result<void *> open_library(const std::string &library) {
  if (!library.empty())
    return opened(library);
  if (const char *named = std::getenv(variable); named && *named)
    return opened(named);
  // A package without headers has only the name with the major version.
  if (Result<void *> handle = opened("libonnxruntime.so.1"); handle.ok())
    return handle;
  return opened("libonnxruntime.so");
}

} // namespace

Result<std::shared_ptr<const OnnxRuntime>> OnnxRuntime::open(const std::string &library) {
  Result<void *> handle = open_library(library);
  if (!handle.ok())
    return handle.status();
  void *symbol = dlsym(*handle, "OrtGetApiBase");
  if (!symbol)
    return failed_precondition(std::string("the library is not ONNX Runtime: ") + dlerror() + hint);
  const ort::ApiBase *base = reinterpret_cast<const ort::ApiBase *(*)()>(symbol)();
  const void *table = base->get_api(ort::api_version);
  if (!table)
    return failed_precondition(std::string("ONNX Runtime ") + base->get_version_string() +
                               " has no C API of version 1");
  std::shared_ptr<OnnxRuntime> runtime(new OnnxRuntime(ort::Api(table)));
  if (Status started = runtime->start(); !started.ok())
    return started;
  return std::shared_ptr<const OnnxRuntime>(std::move(runtime));
}

Status OnnxRuntime::start() {
  ort::Env *env = nullptr;
  if (Status made = call<ort::CreateEnv>(ort::Logging::Fatal, "policybridge", &env); !made.ok())
    return made;
  env_ = owned<ort::ReleaseEnv>(env);
  ort::MemoryInfo *memory = nullptr;
  if (Status made = call<ort::CreateCpuMemoryInfo>(ort::AllocatorKind::Device, ort::MemoryKind::Default, &memory);
      !made.ok())
    return made;
  memory_ = owned<ort::ReleaseMemoryInfo>(memory);
  return call<ort::GetAllocatorWithDefaultOptions>(&allocator_);
}

Status OnnxRuntime::status_of(ort::Error *error) const {
  if (!error)
    return {};
  const ort::OwnedError held = owned<ort::ReleaseError>(error);
  return internal_error(std::string("ONNX Runtime: ") + api_.call<ort::GetErrorMessage>(held.get()));
}

} // namespace policybridge
