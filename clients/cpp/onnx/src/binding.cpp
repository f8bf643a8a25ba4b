#include "binding.h"

#include <algorithm>

namespace policybridge {
namespace {

using Shape = Span<const std::int64_t>;

std::size_t leading_ones(Shape shape) {
  std::size_t count = 0;
  while (count < shape.size() && shape[count] == 1)
    ++count;
  return count;
}

Shape without(std::size_t count, Shape shape) { return {shape.data() + count, shape.size() - count}; }

Shape squeezed(Shape shape) { return without(leading_ones(shape), shape); }

bool same(Shape left, Shape right) { return std::equal(left.begin(), left.end(), right.begin(), right.end()); }

/// Whether the model evaluates batches: all its tensors have the same dimension of open size in front.
bool has_batches(const std::vector<OnnxValueInfo> &inputs, const OnnxValueInfo &output) {
  return output.open_first && std::all_of(inputs.begin(), inputs.end(), [&](const OnnxValueInfo &input) {
           return input.open_first == output.open_first;
         });
}

/// The spec of the tensor for one observation, without the batch dimension.
TensorSpec single(const OnnxValueInfo &value_info, std::size_t batch) {
  TensorSpec spec = value_info.spec;
  spec.shape.erase(spec.shape.begin(), spec.shape.begin() + static_cast<std::ptrdiff_t>(batch));
  return spec;
}

bool takes(const TensorSpec &input, const TensorSpec &feature) {
  return input.type == feature.type && shape_fits(squeezed(input.shape), squeezed(feature.shape));
}

/// Whether an output of the spec `output` can be read as `advice`.
bool gives(const TensorSpec &output, const TensorSpec &advice) {
  if (output.type != advice.type || output.is_fixed() != advice.is_fixed())
    return false;
  return same(squeezed(output.shape), squeezed(advice.shape)) || (!advice.is_fixed() && takes(advice, output));
}

std::string names(const std::vector<TensorSpec> &specs) {
  std::string text;
  for (const TensorSpec &spec : specs)
    text += (text.empty() ? "" : ", ") + spec.name;
  return text;
}

Result<OnnxBinding::Input> bind_input(const TensorSpec &input, std::size_t batch, const Signature &client,
                                      const OnnxModel &model) {
  const auto feature = std::find_if(client.features.begin(), client.features.end(),
                                    [&](const TensorSpec &spec) { return spec.name == input.name; });
  if (feature == client.features.end())
    return invalid_argument(model.file() + " needs " + input.to_string() +
                            ", which the client does not send; it sends " + names(client.features));
  if (!takes(input, *feature))
    return invalid_argument(model.file() + " takes " + input.to_string() + "; the client sends " +
                            feature->to_string());
  return OnnxBinding::Input{static_cast<std::size_t>(feature - client.features.begin()),
                            {leading_ones(feature->shape), batch + leading_ones(input.shape)}};
}

} // namespace

bool shape_fits(Shape wanted, Shape given) {
  return std::equal(wanted.begin(), wanted.end(), given.begin(), given.end(),
                    [](std::int64_t want, std::int64_t size) { return want == varies || want == size; });
}

void Reshaping::apply(Shape given, std::vector<std::int64_t> &made) const {
  made.assign(added, 1);
  const Shape kept = without(std::min(dropped, given.size()), given);
  made.insert(made.end(), kept.begin(), kept.end());
}

Result<OnnxBinding> bind(const Signature &client, const OnnxModel &model) {
  Result<OnnxValueInfo> output = model.output(client.advice.name);
  if (!output.ok())
    return output.status();
  const std::size_t batch = has_batches(model.inputs(), *output) ? 1 : 0;
  const TensorSpec given = single(*output, batch);
  if (!gives(given, client.advice))
    return invalid_argument(model.file() + " gives " + given.to_string() + "; the client expects " +
                            client.advice.to_string());
  OnnxBinding binding{{}, *output, {batch + leading_ones(given.shape), leading_ones(client.advice.shape)}};
  for (const OnnxValueInfo &value_info : model.inputs()) {
    Result<OnnxBinding::Input> input = bind_input(single(value_info, batch), batch, client, model);
    if (!input.ok())
      return input.status();
    binding.inputs.push_back(*input);
  }
  return binding;
}

} // namespace policybridge
