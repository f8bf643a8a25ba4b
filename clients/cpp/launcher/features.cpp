#include "features.h"

#include <algorithm>
#include <cstring>

namespace policybridge {

namespace {

constexpr std::uint64_t limit = 64 << 20;

Status check_fixed(const TensorSpec &spec) {
  if (is_text(spec.type))
    return invalid_argument(spec.name + ": LLVM sends no elements of the type '" + to_string(spec.type) + "'");
  if (spec.is_varying())
    return invalid_argument(spec.name + ": LLVM's tensors have a fixed size, and a dimension is 0 or more");
  return {};
}

} // namespace

std::optional<FeatureSlice> find_feature(const Signature &signature, std::string_view name) {
  FeatureSlice slice;
  for (const TensorSpec &spec : signature.features) {
    slice = {slice.offset + slice.size, static_cast<std::size_t>(spec.byte_size()),
             static_cast<std::size_t>(spec.count())};
    if (spec.name == name)
      return slice;
  }
  return {};
}

Status check_llvm_signature(const Signature &signature) {
  for (const TensorSpec &spec : signature.features)
    if (Status status = check_fixed(spec); !status.ok())
      return status;
  if (Status status = check_fixed(signature.advice); !status.ok())
    return status;
  if (std::max(signature.observation_size(), signature.advice.byte_size()) > limit)
    return resource_exhausted("the header announces tensors of more than " + std::to_string(limit) +
                              " bytes, which is the limit");
  return {};
}

std::int64_t integer_in(std::string_view bytes) {
  const std::size_t size = std::min(bytes.size(), sizeof(std::int64_t));
  // A negative number's missing bytes are all ones.
  std::uint64_t value = size && size < sizeof value && bytes[size - 1] < 0 ? ~std::uint64_t{0} : 0;
  for (std::size_t n = size; n-- > 0;)
    value = value << 8 | static_cast<unsigned char>(bytes[n]);
  return static_cast<std::int64_t>(value);
}

} // namespace policybridge
