#pragma once

#include "policybridge/tensor_spec.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace policybridge {

/// The bytes of a feature in an observation.
struct FeatureSlice {
  std::size_t offset = 0;
  std::size_t size = 0;  ///< in bytes
  std::size_t count = 0; ///< of elements
};

/// Find a feature by its name. The signature's features have a fixed size.
std::optional<FeatureSlice> find_feature(const Signature &signature, std::string_view name);

/// Check that LLVM could have sent this signature. InvalidArgument: a tensor varies in size or holds texts;
/// ResourceExhausted: an observation or the advice takes more than 64 MiB.
Status check_llvm_signature(const Signature &signature);

/// The integer of up to 8 bytes, little endian; a narrower one is read as signed.
std::int64_t integer_in(std::string_view bytes);

} // namespace policybridge
