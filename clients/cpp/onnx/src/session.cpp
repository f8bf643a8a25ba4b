#include "session.h"

#include "guard.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace policybridge {
namespace {

template <class T> void append(T number, std::vector<char> &to) {
  const char *bytes = reinterpret_cast<const char *>(&number);
  to.insert(to.end(), bytes, bytes + sizeof number);
}

std::size_t product(Span<const std::int64_t> shape) {
  std::size_t count = 1;
  for (std::int64_t size : shape)
    count *= static_cast<std::size_t>(size);
  return count;
}

template <class T> bool any_nan(const void *elements, std::size_t count) {
  const T *first = static_cast<const T *>(elements);
  return std::any_of(first, first + count, [](T element) { return std::isnan(element); });
}

bool any_nan(ElementType type, const void *elements, std::size_t count) {
  return (type == ElementType::Float && any_nan<float>(elements, count)) ||
         (type == ElementType::Double && any_nan<double>(elements, count));
}

} // namespace

Result<std::unique_ptr<Session>> OnnxSession::open(std::shared_ptr<const OnnxModel> model, const Signature &signature) {
  Result<OnnxBinding> binding = policybridge::bind(signature, *model);
  if (!binding.ok())
    return binding.status();
  std::unique_ptr<OnnxSession> session(new OnnxSession(std::move(model), signature, *std::move(binding)));
  for (std::size_t n = 0; n < session->binding_.inputs.size(); ++n)
    if (Status fed = session->feed(n); !fed.ok())
      return fed;
  return std::unique_ptr<Session>(std::move(session));
}

OnnxSession::OnnxSession(std::shared_ptr<const OnnxModel> model, const Signature &signature, OnnxBinding binding)
    : model_(std::move(model)), runtime_(model_->runtime()), binding_(std::move(binding)), advice_(signature.advice) {
  features_.reserve(signature.features.size());
  for (const TensorSpec &spec : signature.features)
    features_.emplace_back(spec);
  for (const OnnxValueInfo &input : model_->inputs())
    names_.push_back(input.spec.name.c_str());
  values_.resize(names_.size());
  fed_.resize(names_.size());
}

Result<SessionInfo> OnnxSession::info() const {
  return unimplemented(model_->file() + " is a file: it has no policy version, and its sessions have no ids");
}

Status OnnxSession::set_context(std::string_view) {
  return over_.ok() ? Status() : failed_precondition("the session is over: " + over_.message());
}

Status OnnxSession::report(const Outcome &) {
  return unimplemented("a model in this process has no ledger to record an outcome");
}

void OnnxSession::close() noexcept {
  if (over_.ok())
    over_ = unavailable("it was closed");
}

Status OnnxSession::evaluate(std::uint64_t, std::string_view observation, AdviceBuffer &advice) {
  if (!over_.ok())
    return failed_precondition("the session is over: " + over_.message());
  over_ = guarded([&] { return answer(observation, advice); });
  return over_;
}

Status OnnxSession::answer(std::string_view observation, AdviceBuffer &advice) {
  if (Status read = this->read(observation); !read.ok())
    return read;
  for (std::size_t n = 0; n < binding_.inputs.size(); ++n)
    if (!features_[binding_.inputs[n].feature].spec().is_fixed())
      if (Status fed = feed(n); !fed.ok())
        return fed;
  const char *name = binding_.output.spec.name.c_str();
  ort::Value *output = nullptr;
  if (Status ran = runtime_.call<ort::Run>(model_->session(), nullptr, names_.data(), fed_.data(), fed_.size(), &name,
                                           std::size_t{1}, &output);
      !ran.ok())
    return ran;
  const ort::OwnedValue held = runtime_.owned<ort::ReleaseValue>(output);
  advice.bytes.clear();
  advice.log_probability.reset();
  return take(output, advice.bytes);
}

Status OnnxSession::read(std::string_view observation) {
  for (Tensor &feature : features_)
    if (Status status = read_session_form(observation, feature); !status.ok())
      return status;
  if (!observation.empty())
    return invalid_argument(std::to_string(observation.size()) + " bytes follow the last feature");
  return {};
}

Status OnnxSession::feed(std::size_t input) {
  const OnnxBinding::Input &bound = binding_.inputs[input];
  Tensor &feature = features_[bound.feature];
  bound.reshaping.apply(feature.shape(), shape_);
  ort::OwnedValue &value = values_[input];
  if (is_text(feature.spec().type)) {
    if (Status fed = feed_texts(feature, value); !fed.ok())
      return fed;
  } else {
    // A tensor without elements may have no memory, and ONNX Runtime does not accept a null pointer.
    void *data = feature.count() ? feature.raw() : &shape_;
    ort::Value *made = nullptr;
    if (Status status = runtime_.call<ort::CreateTensorWithData>(
            runtime_.memory(), data, feature.count() * element_size(feature.spec().type), shape_.data(), shape_.size(),
            *to_onnx(feature.spec().type), &made);
        !status.ok())
      return status;
    value = runtime_.owned<ort::ReleaseValue>(made);
  }
  fed_[input] = value.get();
  return {};
}

Status OnnxSession::feed_texts(const Tensor &feature, ort::OwnedValue &value) {
  std::vector<std::string> texts;
  for (std::size_t n = 0; n < feature.count(); ++n) {
    texts.emplace_back(feature.text(n));
    if (texts.back().find('\0') != std::string::npos)
      return invalid_argument(feature.spec().to_string() + ": ONNX Runtime takes no text with a zero byte");
  }
  std::vector<const char *> pointers;
  for (const std::string &text : texts)
    pointers.push_back(text.c_str());
  ort::Value *made = nullptr;
  if (Status status = runtime_.call<ort::CreateTensor>(runtime_.allocator(), shape_.data(), shape_.size(),
                                                       ort::Element::String, &made);
      !status.ok())
    return status;
  value = runtime_.owned<ort::ReleaseValue>(made);
  return runtime_.call<ort::FillStringTensor>(made, pointers.data(), pointers.size());
}

Status OnnxSession::take(ort::Value *output, std::vector<char> &advice) {
  ort::TensorInfo *info = nullptr;
  if (Status status = runtime_.call<ort::GetTensorTypeAndShape>(output, &info); !status.ok())
    return status;
  const ort::OwnedTensorInfo held = runtime_.owned<ort::ReleaseTensorInfo>(info);
  std::size_t count = 0;
  if (Status shaped = take_shape(info, count, advice); !shaped.ok())
    return shaped;
  if (is_text(advice_.type))
    return take_texts(output, count, advice);
  void *elements = nullptr;
  if (Status status = runtime_.call<ort::GetTensorMutableData>(output, &elements); !status.ok())
    return status;
  if (any_nan(advice_.type, elements, count))
    return internal_error("the policy gave NaN for " + advice_.to_string());
  const char *bytes = static_cast<const char *>(elements);
  advice.insert(advice.end(), bytes, bytes + count * element_size(advice_.type));
  return {};
}

Status OnnxSession::take_shape(const ort::TensorInfo *info, std::size_t &count, std::vector<char> &advice) {
  std::size_t rank = 0;
  if (Status status = runtime_.call<ort::GetDimensionsCount>(info, &rank); !status.ok())
    return status;
  std::vector<std::int64_t> given(rank);
  if (Status status = runtime_.call<ort::GetDimensions>(info, given.data(), rank); !status.ok())
    return status;
  count = product(given);
  binding_.advice.apply(given, shape_);
  const bool fits = advice_.is_fixed() ? count == advice_.count()
                                       : rank == binding_.output.spec.shape.size() && count == product(shape_) &&
                                             shape_fits(advice_.shape, shape_);
  if (!fits)
    return internal_error("the model gave " + TensorSpec{binding_.output.spec.name, advice_.type, given}.to_string() +
                          " for " + advice_.to_string());
  for (std::size_t n = 0; n < advice_.shape.size(); ++n)
    if (advice_.shape[n] == varies)
      append(static_cast<std::uint64_t>(shape_[n]), advice);
  return {};
}

Status OnnxSession::take_texts(ort::Value *output, std::size_t count, std::vector<char> &advice) {
  std::size_t size = 0;
  if (Status status = runtime_.call<ort::GetStringTensorDataLength>(output, &size); !status.ok())
    return status;
  std::string texts(size, '\0');
  std::vector<std::size_t> starts(count);
  if (Status status =
          runtime_.call<ort::GetStringTensorContent>(output, texts.data(), size, starts.data(), starts.size());
      !status.ok())
    return status;
  starts.push_back(size);
  for (std::size_t n = 0; n < count; ++n)
    append(static_cast<std::uint32_t>(starts[n + 1] - starts[n]), advice);
  advice.insert(advice.end(), texts.begin(), texts.end());
  return {};
}

} // namespace policybridge
