#ifndef POLICYBRIDGE_ONNX_RUNTIME_H
#define POLICYBRIDGE_ONNX_RUNTIME_H

#include "ort_api.h"

#include "policybridge/status.h"

#include <memory>
#include <string>

namespace policybridge {

/// ONNX Runtime, opened while the program runs: building needs no package of it. For several threads.
class OnnxRuntime {
public:
  /// Open `library`; empty for the environment variable POLICYBRIDGE_ONNXRUNTIME, else the loader's libonnxruntime.so.
  /// FailedPrecondition: there is none, or it is something else.
  static Result<std::shared_ptr<const OnnxRuntime>> open(const std::string &library);

  /// Call an entry that may fail, and take its error.
  template <class Entry, class... Arguments> Status call(Arguments... arguments) const {
    return status_of(api_.call<Entry>(arguments...));
  }

  /// Own what an entry made; `Entry` gives it back.
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
