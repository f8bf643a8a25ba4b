#include "stored_session.h"

#include "features.h"
#include "sha256.h"

#include <algorithm>

namespace policybridge {

namespace {

constexpr std::string_view own_decision = "inlining_default";
constexpr std::string_view of_the_caller = "caller_";
/// Features that other functions change, or other decisions.
constexpr std::string_view elsewhere[] = {"node_count", "edge_count", "callee_users", own_decision};

bool is_hashed(const TensorSpec &spec) {
  return spec.type == ElementType::Int64 && spec.name.compare(0, of_the_caller.size(), of_the_caller) != 0 &&
         std::find(std::begin(elsewhere), std::end(elsewhere), spec.name) == std::end(elsewhere);
}

} // namespace

Result<std::unique_ptr<Session>> StoredSession::open(const Signature &signature, const Decisions &decisions,
                                                     std::uint64_t &applied) {
  const std::optional<FeatureSlice> own = find_feature(signature, own_decision);
  if (!own)
    return invalid_argument("the compiler sends no feature " + std::string(own_decision) +
                            ", which stands where the store has nothing");
  return std::unique_ptr<Session>(new StoredSession(signature, {own->offset, own->size}, decisions, applied));
}

StoredSession::StoredSession(const Signature &signature, Slice own, const Decisions &decisions, std::uint64_t &applied)
    : own_(own), advice_size_(static_cast<std::size_t>(signature.advice.byte_size())), decisions_(decisions),
      applied_(applied) {
  std::size_t offset = 0;
  for (const TensorSpec &spec : signature.features) {
    const auto size = static_cast<std::size_t>(spec.byte_size());
    if (is_hashed(spec))
      hashed_.push_back({offset, size});
    offset += size;
  }
}

Result<SessionInfo> StoredSession::info() const { return unimplemented("a store of decisions has no policy"); }

DecisionKey StoredSession::next_key(std::string_view observation) {
  text_.clear();
  for (const Slice &slice : hashed_)
    text_ += observation.substr(slice.offset, slice.size);
  const std::uint64_t hash = sha256_head(text_);
  return {hash, asked_[hash]++};
}

Status StoredSession::evaluate(std::uint64_t, std::string_view observation, AdviceBuffer &advice) {
  const auto stored = decisions_.find(next_key(observation));
  bool inlines = integer_in(observation.substr(own_.offset, own_.size)) != 0;
  if (stored != decisions_.end()) {
    inlines = stored->second;
    ++applied_;
  }
  advice.bytes.assign(advice_size_, '\0');
  if (!advice.bytes.empty())
    advice.bytes[0] = inlines;
  return {};
}

} // namespace policybridge
