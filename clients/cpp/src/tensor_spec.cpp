#include "policybridge/tensor_spec.h"

#include "utf8.h"

#include <algorithm>
#include <array>
#include <set>

namespace policybridge {

namespace {

struct Kind {
  ElementType type;
  const char *name;
  std::size_t size;
};

constexpr std::array<Kind, 13> kinds = {{
    {ElementType::Float, "float", 4},
    {ElementType::Double, "double", 8},
    {ElementType::Int8, "int8_t", 1},
    {ElementType::UInt8, "uint8_t", 1},
    {ElementType::Int16, "int16_t", 2},
    {ElementType::UInt16, "uint16_t", 2},
    {ElementType::Int32, "int32_t", 4},
    {ElementType::UInt32, "uint32_t", 4},
    {ElementType::Int64, "int64_t", 8},
    {ElementType::UInt64, "uint64_t", 8},
    {ElementType::Bool, "bool", 1},
    {ElementType::Bytes, "bytes", 0},
    {ElementType::String, "string", 0},
}};

const Kind *kind_of(ElementType type) noexcept {
  const auto index = static_cast<std::size_t>(static_cast<int>(type)) - 1;
  return index < kinds.size() ? &kinds[index] : nullptr;
}

/// The product of the dimensions, one that varies or is 0 taken as 1; saturates at `limit` + 1.
std::uint64_t bounded_product(const std::vector<std::int64_t> &shape, std::uint64_t factor, std::uint64_t limit) {
  for (std::int64_t dimension : shape) {
    const std::uint64_t size = dimension <= 0 ? 1 : static_cast<std::uint64_t>(dimension);
    if (size > limit / factor)
      return limit + 1;
    factor *= size;
  }
  return factor;
}

} // namespace

const char *to_string(ElementType type) noexcept {
  const Kind *kind = kind_of(type);
  return kind ? kind->name : "unknown";
}

std::optional<ElementType> element_type_from(std::string_view name) noexcept {
  for (const Kind &kind : kinds)
    if (name == kind.name)
      return kind.type;
  return std::nullopt;
}

std::size_t element_size(ElementType type) noexcept {
  const Kind *kind = kind_of(type);
  return kind ? kind->size : 0;
}

bool TensorSpec::is_varying() const noexcept { return std::find(shape.begin(), shape.end(), varies) != shape.end(); }

std::uint64_t TensorSpec::count() const noexcept {
  std::uint64_t product = 1;
  for (std::int64_t dimension : shape)
    product *= dimension < 0 ? 1 : static_cast<std::uint64_t>(dimension);
  return product;
}

std::string TensorSpec::to_string() const {
  std::string text = name + ": " + policybridge::to_string(type) + "[";
  for (std::size_t n = 0; n < shape.size(); ++n)
    text += (n ? ", " : "") + std::to_string(shape[n]);
  return text + "]";
}

Status TensorSpec::check() const {
  if (name.empty())
    return invalid_argument("a tensor has an empty name; every tensor needs one");
  if (!is_utf8(name))
    return invalid_argument("a tensor's name is not UTF-8: " + quoted(name));
  if (!kind_of(type))
    return invalid_argument(name + ": no element type has the number " + std::to_string(static_cast<int>(type)));
  if (shape.size() > max_dimensions)
    return invalid_argument(name + " has " + std::to_string(shape.size()) + " dimensions; at most " +
                            std::to_string(max_dimensions) + " are possible");
  if (std::any_of(shape.begin(), shape.end(), [](std::int64_t dimension) { return dimension < varies; }))
    return invalid_argument(to_string() + ": a dimension is -1 (varies) or at least 0");
  // A text is a reference of 8 bytes on the server's side; a tensor without elements is held to the limit too.
  const std::uint64_t size = is_text(type) ? 8 : element_size(type);
  if (bounded_product(shape, size, max_layout_bytes) > max_layout_bytes)
    return resource_exhausted(to_string() + " is too large; at most " + std::to_string(max_layout_bytes) +
                              " bytes are possible");
  return {};
}

bool Signature::has_fixed_features() const noexcept {
  return std::all_of(features.begin(), features.end(), [](const TensorSpec &spec) { return spec.is_fixed(); });
}

std::uint64_t Signature::observation_size() const noexcept {
  std::uint64_t size = 0;
  for (const TensorSpec &spec : features)
    size += spec.byte_size();
  return size;
}

Status Signature::check() const {
  std::set<std::string_view> names;
  for (const TensorSpec &spec : features) {
    if (Status status = spec.check(); !status.ok())
      return status;
    if (!names.insert(spec.name).second)
      return invalid_argument("two tensors are named '" + spec.name + "'; names must differ");
  }
  if (observation_size() > max_layout_bytes)
    return resource_exhausted("the " + std::to_string(features.size()) + " tensors together exceed " +
                              std::to_string(max_layout_bytes) + " bytes");
  return advice.check();
}

} // namespace policybridge
