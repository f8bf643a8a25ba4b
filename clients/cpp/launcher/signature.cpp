#include "signature.h"

#include "json.h"

#include <cstring>

namespace policybridge {

namespace {

constexpr std::size_t limit = 64 << 20;

std::size_t width_of(std::string_view type) {
  if (type == "int8_t" || type == "uint8_t" || type == "bool")
    return 1;
  if (type == "int16_t" || type == "uint16_t")
    return 2;
  if (type == "float" || type == "int32_t" || type == "uint32_t")
    return 4;
  return type == "double" || type == "int64_t" || type == "uint64_t" ? 8 : 0;
}

Error no_header(const std::string &why) {
  return Error::policy(InvalidArgument, "not a header line of LLVM's stream: " + why);
}

Result<Spec> parse_spec(const Json &fields) {
  const Json *name = fields.field("name", Json::Kind::String);
  const Json *type = fields.field("type", Json::Kind::String);
  const Json *shape = fields.field("shape", Json::Kind::Array);
  if (!name || !type || !shape)
    return no_header("a tensor has a name, a type and a shape");
  Spec spec{name->text, type->text, 1, 0, 0};
  const std::size_t width = width_of(spec.type);
  if (!width)
    return no_header(spec.name + ": LLVM sends no elements of the type '" + spec.type + "'");
  for (const Json &dimension : shape->items) {
    const double length = dimension.number;
    if (dimension.kind != Json::Kind::Number || !(length >= 0) || length > limit)
      return no_header(spec.name + ": a dimension is 0 to " + std::to_string(limit) + "; LLVM's shapes never vary");
    spec.count *= static_cast<std::size_t>(length);
    if (spec.count * width > limit)
      return Error::policy(ResourceExhausted, "the header promises tensors of more than " + std::to_string(limit) +
                                                  " bytes, which are not taken");
  }
  spec.size = spec.count * width;
  return spec;
}

} // namespace

std::size_t Signature::size() const { return features.empty() ? 0 : features.back().offset + features.back().size; }

const Spec *Signature::feature(std::string_view name) const {
  for (const Spec &spec : features)
    if (spec.name == name)
      return &spec;
  return nullptr;
}

Result<Signature> Signature::parse(std::string_view line) {
  const std::optional<Json> header = Json::parse(line);
  const Json *features = header ? header->field("features", Json::Kind::Array) : nullptr;
  const Json *advice = header ? header->field("advice", Json::Kind::Object) : nullptr;
  if (!features || !advice)
    return no_header("it is JSON with features and advice");
  Signature signature;
  for (const Json &fields : features->items) {
    Result<Spec> spec = parse_spec(fields);
    if (!spec)
      return std::move(spec.error());
    spec->offset = signature.size();
    signature.features.push_back(std::move(*spec));
    if (signature.size() > limit)
      return Error::policy(ResourceExhausted, "the header promises tensors of " + std::to_string(signature.size()) +
                                                  " bytes; at most " + std::to_string(limit) + " are taken");
  }
  Result<Spec> spec = parse_spec(*advice);
  if (!spec)
    return std::move(spec.error());
  signature.advice = std::move(*spec);
  return signature;
}

std::int64_t integer_of(const Spec &spec, const char *bytes) {
  unsigned char raw[8] = {};
  const std::size_t size = spec.size < sizeof raw ? spec.size : sizeof raw;
  std::memcpy(raw, bytes, size);
  // Of a narrower number the sign has to be carried on.
  if (size && size < sizeof raw && raw[size - 1] & 0x80)
    std::memset(raw + size, 0xff, sizeof raw - size);
  std::uint64_t value = 0;
  for (std::size_t n = sizeof raw; n-- > 0;)
    value = value << 8 | raw[n];
  return static_cast<std::int64_t>(value);
}

} // namespace policybridge
