#include "bound_form.h"

#include <algorithm>
#include <cstring>

namespace policybridge {

namespace {

/// The shape without dimensions of 1 in front, which the server disregards, too.
std::vector<std::int64_t> inner_shape(const TensorSpec &spec) {
  const auto first = std::find_if(spec.shape.begin(), spec.shape.end(), [](std::int64_t size) { return size != 1; });
  return {first, spec.shape.end()};
}

bool is_same(const TensorSpec &left, const TensorSpec &right) {
  return left.type == right.type && inner_shape(left) == inner_shape(right);
}

bool is_reportable(const TensorSpec &spec) { return spec.is_fixed() && spec.type != ElementType::Bool; }

} // namespace

std::optional<BoundForm> BoundForm::bind(const Form &form, const Signature &signature) {
  const auto &given = signature.features;
  if (!is_reportable(signature.advice) || !std::all_of(given.begin(), given.end(), is_reportable) ||
      !is_same(signature.advice, form.advice()))
    return std::nullopt;
  std::vector<Piece> pieces;
  std::size_t known = 0, from = 0;
  for (const TensorSpec &spec : given) {
    const auto size = static_cast<std::size_t>(spec.byte_size());
    for (const FormFeature &feature : form.features())
      if (feature.spec.name == spec.name) {
        if (!is_same(feature.spec, spec))
          return std::nullopt;
        ++known;
        // Neighbours in both are one piece.
        if (!pieces.empty() && pieces.back().from + pieces.back().size == from &&
            pieces.back().to + pieces.back().size == feature.offset)
          pieces.back().size += size;
        else
          pieces.push_back({from, feature.offset, size});
      }
    from += size;
  }
  const auto filled = std::count_if(form.features().begin(), form.features().end(), [&](const FormFeature &feature) {
    const auto is_it = [&](const TensorSpec &spec) { return spec.name == feature.spec.name; };
    return feature.has_fill && std::none_of(given.begin(), given.end(), is_it);
  });
  if (known + static_cast<std::size_t>(filled) != form.features().size())
    return std::nullopt;
  return BoundForm(form, std::move(pieces));
}

Status BoundForm::decide(std::string_view observation, const std::optional<Exploration> &exploration,
                         std::uint64_t number, AdviceBuffer &advice) {
  char *const to = evaluator_.observation();
  for (const Piece &piece : pieces_)
    std::memcpy(to + piece.to, observation.data() + piece.from, piece.size);
  advice.bytes.resize(advice_size_);
  advice.log_probability.reset();
  float chance = 0;
  const FormOutcome outcome = exploration ? evaluator_.draw(*exploration, number, advice.bytes.data(), chance)
                                          : evaluator_.evaluate(advice.bytes.data());
  if (exploration)
    advice.log_probability = chance;
  return outcome == FormOutcome::Ok ? Status() : internal_error(to_string(outcome));
}

} // namespace policybridge
