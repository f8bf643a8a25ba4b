#pragma once

#include "compiler.h"
#include "features.h"
#include "task.h"

#include <cstdint>
#include <optional>
#include <string_view>

namespace policybridge {

/// What LLVM's own heuristic would decide: LLVM 21 and later send it; for earlier ones it is computed where it can be.
class Defaults {
public:
  enum class Source {
    Unknown,  ///< only LLVM itself knows it
    Sent,     ///< LLVM sends it as the last feature
    Computed, ///< at -Oz LLVM inlines what costs less than a fixed threshold
  };

  explicit Defaults(Source source) : source_(source) {}

  /// `llvm`: the compiler's major version; 0 where it is not known.
  static Defaults of(const Compiler &compiler, const Task &task, int llvm);

  bool known() const { return source_ != Source::Unknown; }

  /// The flag that makes LLVM send them; nullptr where none is needed.
  const char *flag() const { return source_ == Source::Sent ? "-inliner-interactive-include-default" : nullptr; }

  /// Learn from LLVM's signature where the default is, or the feature that it is computed from. A computed default is
  /// added to the signature as its last feature. InvalidArgument: the feature is missing.
  Status begin(Signature &signature);

  /// The eight bytes of the computed default, which follow LLVM's features; empty where it is not computed.
  std::string_view computed(std::string_view payload);

  /// LLVM's own decision, as the bytes of an advice. FailedPrecondition: it is not known.
  Result<std::string_view> decision(std::string_view payload);

private:
  Source source_;
  std::optional<FeatureSlice> slice_;
  std::int64_t computed_ = 0;
};

} // namespace policybridge
