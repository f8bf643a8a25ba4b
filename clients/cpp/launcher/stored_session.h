#pragma once

#include "decision_store.h"
#include "policybridge/session.h"
#include "policybridge/tensor_spec.h"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace policybridge {

/// Answers from a store's decisions by sequence, where no server is; elsewhere with LLVM's own decision, the feature
/// `inlining_default`.
///
/// A decision is named by the SHA-256 of the features that other functions and other decisions do not change, and by how
/// often that hash has been asked before.
class StoredSession final : public Session {
public:
  /// InvalidArgument: LLVM's own decision is not among the features. `decisions` and `applied`, which counts the
  /// decisions of the store that were asked for, must outlive the session.
  static Result<std::unique_ptr<Session>> open(const Signature &signature, const Decisions &decisions,
                                               std::uint64_t &applied);

  Result<SessionInfo> info() const override;
  Status evaluate(std::uint64_t step, std::string_view observation, AdviceBuffer &advice) override;
  Status set_context(std::string_view) override { return {}; }
  Status report(const Outcome &) override { return unimplemented("a store of decisions has no ledger"); }
  bool is_open() const noexcept override { return true; }
  void close() noexcept override {}

private:
  struct Slice {
    std::size_t offset;
    std::size_t size;
  };

  StoredSession(const Signature &signature, Slice own, const Decisions &decisions, std::uint64_t &applied);

  DecisionKey next_key(std::string_view observation);

  const Slice own_;
  const std::size_t advice_size_;
  const Decisions &decisions_;
  std::uint64_t &applied_;
  std::vector<Slice> hashed_;
  std::string text_; // the input of the hash
  std::unordered_map<std::uint64_t, std::uint64_t> asked_;
};

} // namespace policybridge
