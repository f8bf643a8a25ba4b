#pragma once

#include "error.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace policybridge {

/// A tensor, and where it stands among the others of one observation; sizes in bytes.
struct Spec {
  std::string name;
  std::string type;
  std::size_t count = 0;
  std::size_t size = 0;
  std::size_t offset = 0;
};

/// The features of an observation in their order, and the advice.
struct Signature {
  std::vector<Spec> features;
  Spec advice;

  /// Bytes of an observation.
  std::size_t size() const;

  /// A feature by its name; nullptr where there is none.
  const Spec *feature(std::string_view name) const;

  /// Reads LLVM's header line. InvalidArgument where it is none; ResourceExhausted where it promises more than 64 MiB.
  static Result<Signature> parse(std::string_view line);
};

/// The integer in the bytes of a tensor of one element, of up to 8 bytes.
std::int64_t integer_of(const Spec &spec, const char *bytes);

} // namespace policybridge
