#include "handles.h"

using namespace policybridge;
using namespace policybridge::c;

namespace {

/// Make a spec. InvalidArgument, ResourceExhausted: the spec's check fails.
Status make_spec(const char *name, pb_element_type type, const int64_t *shape, size_t rank, TensorSpec &spec) {
  Result<std::vector<std::int64_t>> dimensions = shape_of(shape, rank);
  if (!dimensions.ok())
    return dimensions.status();
  TensorSpec made{name, static_cast<ElementType>(type), std::move(*dimensions)};
  if (Status status = made.check(); !status.ok())
    return status;
  spec = std::move(made);
  return {};
}

pb_status add_text(std::map<std::string, std::string> *texts, const char *name, const char *value, pb_error *error) {
  if (!name || !value)
    return null_error("a name or a value", error);
  return at_edge(error, [&]() -> Status {
    (*texts)[name] = value;
    return {};
  });
}

pb_error error_of(const Status &status) {
  pb_error error;
  to_c(status, &error);
  return error;
}

} // namespace

pb_status pb_options_new(const char *policy, pb_options **options, pb_error *error) {
  if (!policy || !options)
    return null_error("a policy, or where to put the options,", error);
  return at_edge(error, [&]() -> Status {
    Result<PolicyReference> reference = PolicyReference::parse(policy);
    if (!reference.ok())
      return reference.status();
    auto made = std::make_unique<pb_options>();
    made->open.policy = std::move(*reference);
    *options = made.release();
    return {};
  });
}

void pb_options_free(pb_options *options) { delete options; }

pb_status pb_options_add_feature(pb_options *options, const char *name, pb_element_type type, const int64_t *shape,
                                 size_t rank, pb_error *error) {
  if (!options || !name)
    return null_error("the options or a feature's name", error);
  return at_edge(error, [&]() -> Status {
    TensorSpec spec;
    if (Status status = make_spec(name, type, shape, rank, spec); !status.ok())
      return status;
    options->features.push_back(std::move(spec));
    return {};
  });
}

pb_status pb_options_set_advice(pb_options *options, const char *name, pb_element_type type, const int64_t *shape,
                                size_t rank, pb_error *error) {
  if (!options || !name)
    return null_error("the options or the advice's name", error);
  return at_edge(error, [&] { return make_spec(name, type, shape, rank, options->advice); });
}

pb_status pb_options_set_context(pb_options *options, const char *name, pb_error *error) {
  if (!options || !name)
    return null_error("the options or a context's name", error);
  return at_edge(error, [&]() -> Status {
    options->open.context = name;
    return {};
  });
}

pb_status pb_options_add_option(pb_options *options, const char *name, const char *value, pb_error *error) {
  return options ? add_text(&options->open.options, name, value, error) : null_error("the options", error);
}

pb_status pb_options_add_label(pb_options *options, const char *name, const char *value, pb_error *error) {
  return options ? add_text(&options->open.labels, name, value, error) : null_error("the options", error);
}

pb_status pb_options_set_exploration(pb_options *options, uint64_t seed, double temperature, double epsilon,
                                     pb_error *error) {
  if (!options)
    return null_error("the options", error);
  options->open.exploration = Exploration{seed, temperature, epsilon};
  return PB_OK;
}

pb_status pb_options_set_evaluate(pb_options *options, const char *place, pb_error *error) {
  if (!options || !place)
    return null_error("the options or the place", error);
  return at_edge(error, [&]() -> Status {
    const Result<Evaluate> evaluate = parse_evaluate(place);
    if (evaluate.ok())
      options->open.evaluate = *evaluate;
    return evaluate.status();
  });
}

pb_status pb_options_set_fallback(pb_options *options, pb_fallback fallback, void *user, pb_error *error) {
  if (!options || !fallback)
    return null_error("the options or the fallback", error);
  return at_edge(error, [&]() -> Status {
    options->runner.fallback = [fallback, user](const Status &why, Tensor &advice) -> Status {
      const pb_error failure = error_of(why);
      const pb_status status = fallback(user, &failure, handle_of(&advice));
      return status == PB_OK ? Status()
                             : Status(status_code_from(status), "the fallback failed after: " + why.message());
    };
    return {};
  });
}

pb_status pb_options_set_retries(pb_options *options, unsigned retries, pb_error *error) {
  if (!options)
    return null_error("the options", error);
  options->runner.retries = retries;
  return PB_OK;
}

pb_status pb_options_set_reopen(pb_options *options, bool reopen, pb_error *error) {
  if (!options)
    return null_error("the options", error);
  options->runner.reopen = reopen;
  return PB_OK;
}
