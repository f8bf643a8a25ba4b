#include "policybridge/onnx.h"

#include "guard.h"
#include "model.h"
#include "session.h"

#include <mutex>

namespace policybridge {
namespace {

class OnnxConnection final : public Connection {
public:
  OnnxConnection(std::string file, std::string library) : file_(std::move(file)), library_(std::move(library)) {}

  Result<std::unique_ptr<Session>> open(const OpenOptions &options, const Signature &signature) override {
    if (options.policy.version || options.policy.alias)
      return invalid_argument("onnx:" + file_ + " is one file without versions; name the policy " +
                              options.policy.name + " without @");
    if (options.exploration)
      return invalid_argument("onnx:" + file_ +
                              " cannot explore; a policy server can, for policies with an advice head");
    return guarded([&]() -> Result<std::unique_ptr<Session>> {
      Result<std::shared_ptr<const OnnxModel>> model = this->model();
      if (!model.ok())
        return model.status();
      return OnnxSession::open(*std::move(model), signature);
    });
  }

  Status check() override {
    const Result<std::shared_ptr<const OnnxModel>> model = guarded([&] { return this->model(); });
    return model.ok() ? Status() : unavailable(model.status().message());
  }

  Status report_outcome(const std::string &, const Outcome &) override {
    return unimplemented("a model in this process has no ledger to record an outcome");
  }

private:
  /// The model, loaded by the first caller. After a failure, the next caller tries again.
  Result<std::shared_ptr<const OnnxModel>> model() {
    std::lock_guard<std::mutex> lock(mutex_);
    if (model_)
      return model_;
    Result<std::shared_ptr<const OnnxRuntime>> runtime = OnnxRuntime::open(library_);
    if (!runtime.ok())
      return runtime.status();
    Result<std::shared_ptr<const OnnxModel>> loaded = OnnxModel::load(*std::move(runtime), file_);
    if (loaded.ok())
      model_ = *loaded;
    return loaded;
  }

  const std::string file_;
  const std::string library_;
  std::mutex mutex_;
  std::shared_ptr<const OnnxModel> model_;
};

} // namespace

Result<std::shared_ptr<Connection>> connect_onnx(std::string_view target, const ConnectOptions &options) {
  if (target.empty())
    return invalid_argument("an ONNX address is onnx:FILE; there is nothing after onnx:");
  return guarded([&]() -> Result<std::shared_ptr<Connection>> {
    return std::shared_ptr<Connection>(std::make_shared<OnnxConnection>(std::string(target), options.onnxruntime));
  });
}

} // namespace policybridge
