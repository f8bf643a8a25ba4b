#ifndef POLICYBRIDGE_ONNX_RUNTIME_H
#define POLICYBRIDGE_ONNX_RUNTIME_H

#include "ort_api.h"

#include "policybridge/status.h"

#include <memory>
#include <string>

namespace policybridge {

/// The ONNX Runtime library, opened at run time, so that building needs no package of it. Any thread may use it.
class OnnxRuntime {
public:
  /// Open `library`; empty for the environment variable POLICYBRIDGE_ONNXRUNTIME, else the loader's libonnxruntime.so.
  /// FailedPrecondition: there is no such library, or it is not ONNX Runtime.
  static Result<std::shared_ptr<const OnnxRuntime>> open(const std::string &library);

  /// Call an entry of the table that can fail, and give its error.
  template <class Entry, class... Arguments> Status call(Arguments... arguments) const {
    return status_of(api_.call<Entry>(arguments...));
  }

  /// Own an object of ONNX Runtime's; `Entry` releases it.
  template <class Entry, class T> ort::Owned<T, Entry> owned(T *object) const {
    return ort::Owned<T, Entry>(object, ort::Release<Entry>{api_});
  }

  const ort::Env *env() const noexcept { return env_.get(); }
  const ort::MemoryInfo *memory() const noexcept { return memory_.get(); }
  ort::Allocator *allocator() const noexcept { return allocator_; }

private:
  explicit OnnxRuntime(ort::Api api) : api_(api) {}
  Status start();
  Status status_of(ort::Error *error) const;

  const ort::Api api_;
  ort::OwnedEnv env_;
  ort::OwnedMemoryInfo memory_;
  ort::Allocator *allocator_ = nullptr; // the runtime's own, for ever
};

} // namespace policybridge

#endif
