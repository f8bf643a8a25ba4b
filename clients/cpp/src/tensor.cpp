#include "policybridge/tensor.h"

#include "guard.h"
#include "utf8.h"

#include <algorithm>
#include <cstring>

namespace policybridge {

namespace {

std::string text_of(Span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t n = 0; n < shape.size(); ++n)
    text += (n ? ", " : "") + std::to_string(shape[n]);
  return text + "]";
}

/// The number of elements of `shape`; absent where it is above the limit.
std::optional<std::uint64_t> elements(Span<const std::int64_t> shape, std::uint64_t limit) {
  std::uint64_t product = 1;
  for (std::int64_t dimension : shape) {
    if (dimension == 0)
      return 0;
    if (static_cast<std::uint64_t>(dimension) > limit / product)
      return std::nullopt;
    product *= static_cast<std::uint64_t>(dimension);
  }
  return product;
}

} // namespace

Tensor::Tensor(TensorSpec spec, void *memory) : spec_(std::move(spec)), shape_(spec_.shape) {
  std::replace(shape_.begin(), shape_.end(), varies, std::int64_t{0});
  fitted_.reserve(shape_.size());
  count_ = spec_.is_varying() ? 0 : static_cast<std::size_t>(spec_.count());
  if (is_text(spec_.type)) {
    texts_.resize(count_);
  } else if (memory) {
    data_ = memory;
    std::memset(memory, 0, static_cast<std::size_t>(spec_.byte_size()));
  } else {
    allocate(count_);
  }
}

void Tensor::allocate(std::size_t count) {
  // Never empty, so that a tensor without elements has an address too.
  owned_.resize(std::max<std::size_t>(1, (count * element_size(spec_.type) + 7) / 8));
  data_ = owned_.data();
}

std::string_view Tensor::text(std::size_t index) const noexcept {
  return index < texts_.size() ? std::string_view(texts_[index]) : std::string_view();
}

/// Leave in `fitted_` the shape that `count` elements get; an empty `shape` is filled in from the spec.
Status Tensor::fit(std::size_t count, Span<const std::int64_t> shape) {
  const auto &wanted = spec_.shape;
  const auto mismatch = [&](Span<const std::int64_t> given) {
    return invalid_argument(spec_.to_string() + " was given " + std::to_string(count) + " elements of shape " +
                            text_of(given));
  };
  if (shape.empty() && !wanted.empty()) {
    const std::uint64_t rest = spec_.count();
    const auto open = std::count(wanted.begin(), wanted.end(), varies);
    if (open > 1)
      return invalid_argument(spec_.to_string() + " leaves several sizes open; its value needs a shape");
    fitted_ = wanted;
    if (open == 1) {
      const std::size_t size = rest ? count / static_cast<std::size_t>(rest) : 0;
      std::replace(fitted_.begin(), fitted_.end(), varies, static_cast<std::int64_t>(size));
    }
  } else {
    bool fits = shape.size() == wanted.size();
    for (std::size_t n = 0; fits && n < wanted.size(); ++n)
      fits = shape[n] >= 0 && (wanted[n] == varies || wanted[n] == shape[n]);
    if (!fits)
      return mismatch(shape);
    fitted_.assign(shape.begin(), shape.end());
  }
  if (elements(fitted_, max_layout_bytes) != count)
    return mismatch(fitted_);
  return {};
}

Status Tensor::set_raw(ElementType type, const void *values, std::size_t count, Span<const std::int64_t> shape) {
  return guarded([&]() -> Status {
    if (type != spec_.type || is_text(type))
      return invalid_argument(spec_.to_string() + " was given elements of " + to_string(type));
    if (Status status = fit(count, shape); !status.ok())
      return status;
    if (spec_.is_varying())
      allocate(count);
    if (count)
      std::memmove(data_, values, count * element_size(type));
    shape_.swap(fitted_);
    count_ = count;
    return {};
  });
}

Status Tensor::set_texts(Span<const std::string_view> texts, Span<const std::int64_t> shape) {
  return guarded([&]() -> Status {
    if (!is_text(spec_.type))
      return invalid_argument(spec_.to_string() + " was given texts");
    if (Status status = fit(texts.size(), shape); !status.ok())
      return status;
    if (spec_.type == ElementType::String)
      for (std::string_view text : texts)
        if (!is_utf8(text))
          return invalid_argument(spec_.to_string() + ": not UTF-8: " + quoted(text));
    // Copy first, because the views may point into this tensor.
    std::vector<std::string> held(texts.begin(), texts.end());
    texts_ = std::move(held);
    shape_.swap(fitted_);
    count_ = texts.size();
    return {};
  });
}

Status Tensor::resize(Span<const std::int64_t> shape) {
  return guarded([&]() -> Status {
    if (is_text(spec_.type))
      return invalid_argument(spec_.to_string() + " holds texts, which are set and not resized");
    bool sound = true;
    for (std::int64_t dimension : shape)
      sound = sound && dimension >= 0;
    const auto count = sound ? elements(shape, max_layout_bytes / element_size(spec_.type)) : std::nullopt;
    if (!count)
      return invalid_argument(spec_.to_string() + " cannot have the shape " + text_of(shape));
    if (Status status = fit(static_cast<std::size_t>(*count), shape); !status.ok())
      return status;
    if (spec_.is_varying())
      allocate(static_cast<std::size_t>(*count));
    shape_.swap(fitted_);
    count_ = static_cast<std::size_t>(*count);
    return {};
  });
}

} // namespace policybridge
