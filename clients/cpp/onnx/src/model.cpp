#include "model.h"

#include <algorithm>
#include <array>
#include <utility>

namespace policybridge {
namespace {

constexpr std::array<std::pair<ElementType, ort::Element>, 12> types{{
    {ElementType::Float, ort::Element::Float},
    {ElementType::Double, ort::Element::Double},
    {ElementType::Int8, ort::Element::Int8},
    {ElementType::UInt8, ort::Element::UInt8},
    {ElementType::Int16, ort::Element::Int16},
    {ElementType::UInt16, ort::Element::UInt16},
    {ElementType::Int32, ort::Element::Int32},
    {ElementType::UInt32, ort::Element::UInt32},
    {ElementType::Int64, ort::Element::Int64},
    {ElementType::UInt64, ort::Element::UInt64},
    {ElementType::Bool, ort::Element::Bool},
    {ElementType::String, ort::Element::String},
}};

std::optional<ElementType> from_onnx(ort::Element element) noexcept {
  for (const auto &[type, onnx] : types)
    if (onnx == element)
      return type;
  return std::nullopt;
}

/// The first error of several calls.
Status first_error(std::initializer_list<Status> statuses) {
  for (const Status &status : statuses)
    if (!status.ok())
      return status;
  return {};
}

} // namespace

std::optional<ort::Element> to_onnx(ElementType type) noexcept {
  for (const auto &[ours, onnx] : types)
    if (ours == type)
      return onnx;
  return std::nullopt;
}

Result<std::shared_ptr<const OnnxModel>> OnnxModel::load(std::shared_ptr<const OnnxRuntime> runtime,
                                                         const std::string &file) {
  std::shared_ptr<OnnxModel> model(new OnnxModel(std::move(runtime), file));
  Status loaded = model->start();
  if (loaded.ok())
    loaded = model->read_ports();
  if (!loaded.ok())
    return failed_precondition(file + " cannot be loaded: " + loaded.message());
  return std::shared_ptr<const OnnxModel>(std::move(model));
}

Status OnnxModel::start() {
  ort::SessionOptions *made = nullptr;
  if (Status status = runtime_->call<ort::CreateSessionOptions>(&made); !status.ok())
    return status;
  const ort::OwnedSessionOptions options = runtime_->owned<ort::ReleaseSessionOptions>(made);
  // One thread: the compiler needs the other cores, and a small network is evaluated before a second thread wakes up.
  const Status set = first_error({runtime_->call<ort::SetIntraOpNumThreads>(options.get(), 1),
                                  runtime_->call<ort::SetInterOpNumThreads>(options.get(), 1),
                                  runtime_->call<ort::SetSessionLogSeverityLevel>(options.get(), ort::Logging::Fatal)});
  if (!set.ok())
    return set;
  ort::Session *session = nullptr;
  Status created = runtime_->call<ort::CreateSession>(runtime_->env(), file_.c_str(), options.get(), &session);
  if (created.ok())
    session_ = runtime_->owned<ort::ReleaseSession>(session);
  return created;
}

Status OnnxModel::read_ports() {
  std::size_t inputs = 0, outputs = 0;
  if (Status counted = first_error({runtime_->call<ort::SessionGetInputCount>(session_.get(), &inputs),
                                    runtime_->call<ort::SessionGetOutputCount>(session_.get(), &outputs)});
      !counted.ok())
    return counted;
  for (std::size_t n = 0; n < inputs; ++n) {
    Result<std::string> name = this->name<ort::SessionGetInputName>(n);
    if (!name.ok())
      return name.status();
    Result<OnnxValueInfo> input = value_info<ort::SessionGetInputTypeInfo>(n, *std::move(name));
    if (!input.ok())
      return input.status();
    inputs_.push_back(*std::move(input));
  }
  for (std::size_t n = 0; n < outputs; ++n) {
    Result<std::string> name = this->name<ort::SessionGetOutputName>(n);
    if (!name.ok())
      return name.status();
    outputs_.push_back(*std::move(name));
  }
  return {};
}

template <class Entry> Result<std::string> OnnxModel::name(std::size_t index) const {
  char *text = nullptr;
  if (Status status = runtime_->call<Entry>(session_.get(), index, runtime_->allocator(), &text); !status.ok())
    return status;
  std::string copy = text;
  if (Status freed = runtime_->call<ort::AllocatorFree>(runtime_->allocator(), text); !freed.ok())
    return freed;
  return copy;
}

Result<OnnxValueInfo> OnnxModel::output(const std::string &name) const {
  auto output = std::find(outputs_.begin(), outputs_.end(), name);
  if (output == outputs_.end() && outputs_.size() == 1)
    output = outputs_.begin();
  if (output == outputs_.end()) {
    std::string names;
    for (const std::string &each : outputs_)
      names += (names.empty() ? "" : ", ") + each;
    return failed_precondition("the advice is called " + name + "; the outputs of " + file_ + " are " + names);
  }
  return value_info<ort::SessionGetOutputTypeInfo>(static_cast<std::size_t>(output - outputs_.begin()), *output);
}

template <class Entry> Result<OnnxValueInfo> OnnxModel::value_info(std::size_t index, std::string name) const {
  ort::TypeInfo *info = nullptr;
  if (Status typed = runtime_->call<Entry>(session_.get(), index, &info); !typed.ok())
    return typed;
  const ort::OwnedTypeInfo held = runtime_->owned<ort::ReleaseTypeInfo>(info);
  const ort::TensorInfo *tensor = nullptr; // part of `info`
  if (Status cast = runtime_->call<ort::CastTypeInfoToTensorInfo>(info, &tensor); !cast.ok())
    return cast;
  if (!tensor)
    return failed_precondition(name + " is not a tensor");
  ort::Element element{};
  std::size_t rank = 0;
  if (Status read = first_error({runtime_->call<ort::GetTensorElementType>(tensor, &element),
                                 runtime_->call<ort::GetDimensionsCount>(tensor, &rank)});
      !read.ok())
    return read;
  const std::optional<ElementType> type = from_onnx(element);
  if (!type)
    return failed_precondition(name + " has ONNX's element type " + std::to_string(static_cast<int>(element)) +
                               ", which no tensor spec names");
  OnnxValueInfo value_info{{std::move(name), *type, std::vector<std::int64_t>(rank)}, std::nullopt};
  std::vector<const char *> names(rank);
  if (Status read = first_error({runtime_->call<ort::GetDimensions>(tensor, value_info.spec.shape.data(), rank),
                                 runtime_->call<ort::GetSymbolicDimensions>(tensor, names.data(), rank)});
      !read.ok())
    return read;
  if (rank && value_info.spec.shape[0] == varies)
    value_info.open_first = names[0];
  return value_info;
}

} // namespace policybridge
