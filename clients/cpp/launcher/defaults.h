#pragma once

#include "compiler.h"
#include "signals.h"
#include "signature.h"
#include "task.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace policybridge {

/// What LLVM's own heuristic would have done: sent by LLVM 21 and later, computed where it can be for earlier ones.
class Defaults {
public:
  enum class Source {
    Unknown,  ///< LLVM decides by itself alone when it is not asked.
    Sent,     ///< LLVM sends it as the last feature.
    Computed, ///< LLVM would inline what costs less than its threshold for -Oz.
  };

  explicit Defaults(Source source) : source_(source) {}

  /// Finds out what is known; may start the compiler once to ask for its version. The error is a Signal.
  static Result<Defaults> of(const Compiler &compiler, const Task &task, Signals &signals);

  bool known() const { return source_ != Source::Unknown; }

  /// What LLVM must be told, nullptr for nothing.
  const char *flag() const { return source_ == Source::Sent ? "-inliner-interactive-include-default" : nullptr; }

  /// Learns a module's header: where the default is, or what it is computed from. InvalidArgument where that lacks.
  Failure begin(const Signature &signature);

  /// LLVM's header line with the default among the features, as the policy sees it.
  std::string extended(std::string_view line) const;

  /// Eight bytes that go behind LLVM's observation, so that the default is in it; nothing where it is there already.
  std::string_view addition(std::string_view payload);

  /// The bytes that LLVM takes for its own decision. FailedPrecondition where it is not known.
  Result<std::string_view> answer(std::string_view payload);

private:
  Source source_;
  std::size_t place_ = 0;
  std::size_t size_ = 0;
  bool found_ = false;
  std::int64_t computed_ = 0;
};

} // namespace policybridge
