#include "policybridge/tensor.h"

#include <algorithm>
#include <cstring>
#include <limits>

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "elements are sent as they lie in memory, and the protocol is little endian"
#endif

namespace policybridge {

namespace {

template <class T> void append(std::vector<char> &to, T number) {
  const char *bytes = reinterpret_cast<const char *>(&number);
  to.insert(to.end(), bytes, bytes + sizeof number);
}

template <class T> T take(std::string_view &data) {
  T number;
  std::memcpy(&number, data.data(), sizeof number);
  data.remove_prefix(sizeof number);
  return number;
}

Status short_of(const TensorSpec &spec, std::uint64_t announced, std::size_t left) {
  return invalid_argument(spec.to_string() + ": " + std::to_string(announced) + " bytes announced, " +
                          std::to_string(left) + " are left");
}

Status append_texts(const Tensor &tensor, std::vector<char> &to) {
  for (std::size_t n = 0; n < tensor.count(); ++n) {
    const std::size_t size = tensor.text(n).size();
    if (size > std::numeric_limits<std::uint32_t>::max())
      return resource_exhausted(tensor.spec().to_string() + ": a text of " + std::to_string(size) + " bytes");
    append(to, static_cast<std::uint32_t>(size));
  }
  for (std::size_t n = 0; n < tensor.count(); ++n)
    to.insert(to.end(), tensor.text(n).begin(), tensor.text(n).end());
  return {};
}

Status read_texts(std::string_view &data, Tensor &tensor, std::size_t count, Span<const std::int64_t> shape) {
  std::vector<std::uint32_t> lengths(count);
  std::uint64_t total = 0;
  for (std::uint32_t &length : lengths)
    total += length = take<std::uint32_t>(data);
  if (total > data.size())
    return short_of(tensor.spec(), total, data.size());
  std::vector<std::string_view> texts;
  texts.reserve(count);
  for (std::uint32_t length : lengths) {
    texts.push_back(data.substr(0, length));
    data.remove_prefix(length);
  }
  return tensor.set_texts(texts, shape);
}

/// Fill in `shape` from the sizes in front of `data`, and give the number of elements.
Result<std::size_t> read_shape(std::string_view &data, const TensorSpec &spec, std::vector<std::int64_t> &shape) {
  std::uint64_t count = 1;
  for (std::int64_t &dimension : shape) {
    if (dimension == varies) {
      if (data.size() < sizeof(std::uint64_t))
        return short_of(spec, sizeof(std::uint64_t), data.size());
      const auto size = take<std::uint64_t>(data);
      if (size > max_layout_bytes)
        return invalid_argument(spec.to_string() + ": a size of " + std::to_string(size));
      dimension = static_cast<std::int64_t>(size);
    }
    // At most 2⁶²: both factors are below 2³¹, and a size too large for the data is cut to that.
    count = std::min(count * static_cast<std::uint64_t>(dimension), max_layout_bytes);
  }
  return static_cast<std::size_t>(count);
}

Status read_varying(std::string_view &data, Tensor &tensor) {
  const TensorSpec &spec = tensor.spec();
  std::vector<std::int64_t> shape = spec.shape;
  Result<std::size_t> count = read_shape(data, spec, shape);
  if (!count.ok())
    return count.status();
  // Checked before anything is allocated, so that a wrong size costs no memory.
  const std::uint64_t bytes = *count * (is_text(spec.type) ? sizeof(std::uint32_t) : element_size(spec.type));
  if (bytes > data.size())
    return short_of(spec, bytes, data.size());
  if (is_text(spec.type))
    return read_texts(data, tensor, *count, shape);
  Status status = tensor.set_raw(spec.type, data.data(), *count, shape);
  data.remove_prefix(static_cast<std::size_t>(bytes));
  return status;
}

Status check_bools(const TensorSpec &spec, const void *raw, std::size_t count) {
  const auto *bytes = static_cast<const unsigned char *>(raw);
  for (std::size_t n = 0; n < count; ++n)
    if (bytes[n] > 1)
      return invalid_argument(spec.to_string() + ": a bool is 0 or 1, not " + std::to_string(bytes[n]));
  return {};
}

} // namespace

Status append_session_form(const Tensor &tensor, std::vector<char> &to) {
  const TensorSpec &spec = tensor.spec();
  for (std::size_t n = 0; n < spec.shape.size(); ++n)
    if (spec.shape[n] == varies)
      append(to, static_cast<std::uint64_t>(tensor.shape()[n]));
  if (is_text(spec.type))
    return append_texts(tensor, to);
  const char *bytes = static_cast<const char *>(tensor.raw());
  to.insert(to.end(), bytes, bytes + tensor.count() * element_size(spec.type));
  return {};
}

Status read_session_form(std::string_view &data, Tensor &tensor) {
  const TensorSpec &spec = tensor.spec();
  if (!spec.is_fixed()) {
    if (Status status = read_varying(data, tensor); !status.ok())
      return status;
  } else {
    const auto size = static_cast<std::size_t>(spec.byte_size());
    if (size > data.size())
      return short_of(spec, size, data.size());
    if (size)
      std::memcpy(tensor.raw(), data.data(), size);
    data.remove_prefix(size);
  }
  return spec.type == ElementType::Bool ? check_bools(spec, tensor.raw(), tensor.count()) : Status();
}

} // namespace policybridge
