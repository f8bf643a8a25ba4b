#include "messages.h"

#include <cmath>
#include <set>

namespace policybridge {
namespace {

static_assert(static_cast<int>(ElementType::Float) == v1::ELEMENT_TYPE_FLOAT);
static_assert(static_cast<int>(ElementType::UInt64) == v1::ELEMENT_TYPE_UINT64);
static_assert(static_cast<int>(ElementType::Bool) == v1::ELEMENT_TYPE_BOOL);
static_assert(static_cast<int>(ElementType::String) == v1::ELEMENT_TYPE_STRING);

void write(const TensorSpec &spec, v1::TensorSpec &message) {
  message.set_name(spec.name);
  message.set_type(static_cast<v1::ElementType>(spec.type));
  message.mutable_shape()->Assign(spec.shape.begin(), spec.shape.end());
}

void write(const PolicyReference &policy, v1::PolicyReference &message) {
  message.set_name(policy.name);
  if (policy.version)
    message.set_version(*policy.version);
  else if (policy.alias)
    message.set_alias(*policy.alias);
}

void write(const Exploration &exploration, v1::Exploration &message) {
  message.set_seed(exploration.seed);
  message.set_temperature(static_cast<float>(exploration.temperature));
  message.set_epsilon(static_cast<float>(exploration.epsilon));
}

} // namespace

v1::Signature to_message(const Signature &signature) {
  v1::Signature message;
  for (const TensorSpec &spec : signature.features)
    write(spec, *message.add_features());
  write(signature.advice, *message.mutable_advice());
  return message;
}

v1::Open to_message(const OpenOptions &options, const Signature &signature) {
  v1::Open message;
  write(options.policy, *message.mutable_policy());
  if (!options.several_kinds)
    *message.mutable_signature() = to_message(signature);
  message.set_serdes("bitstream");
  message.set_context(options.context);
  message.mutable_options()->insert(options.options.begin(), options.options.end());
  message.mutable_labels()->insert(options.labels.begin(), options.labels.end());
  if (options.exploration)
    write(*options.exploration, *message.mutable_exploration());
  message.set_evaluates(options.takes_forms);
  return message;
}

v1::Outcome to_message(const Outcome &outcome) {
  v1::Outcome message;
  message.mutable_values()->insert(outcome.values.begin(), outcome.values.end());
  message.set_status(outcome.status);
  std::set<std::string> names;
  for (const auto &[context, values] : outcome.contexts) {
    message.mutable_contexts()->add_contexts(context);
    for (const auto &[name, value] : values)
      names.insert(name);
  }
  for (const std::string &name : names) {
    auto &column = (*message.mutable_contexts()->mutable_columns())[name];
    for (const auto &[context, values] : outcome.contexts) {
      const auto value = values.find(name);
      column.add_values(value == values.end() ? std::nan("") : value->second);
    }
  }
  return message;
}

SessionInfo from_message(const v1::Opened &opened) {
  const v1::PolicyVersion &policy = opened.policy();
  SessionInfo info{opened.session_id(),
                   {policy.name(), policy.version(), policy.digest()},
                   {opened.decides().begin(), opened.decides().end()}};
  for (const auto &[kind, form] : opened.forms())
    info.forms[kind] = {form.digest(), form.bytes()};
  info.outside.insert(opened.outside().begin(), opened.outside().end());
  return info;
}

} // namespace policybridge
