#include "handles.h"

#include <cstring>

using namespace policybridge;
using namespace policybridge::c;

pb_status pb_runner_open(pb_connection *connection, const pb_options *options, pb_runner **runner, pb_error *error) {
  if (!connection || !options || !runner)
    return null_error("a connection, the options, or where to put the runner,", error);
  return at_edge(error, [&]() -> Status {
    Result<std::unique_ptr<ModelRunner>> opened =
        ModelRunner::open(connection->connection, options->open, options->features, options->advice, options->runner);
    if (!opened.ok())
      return opened.status();
    *runner = new pb_runner{std::move(*opened), {}};
    return {};
  });
}

pb_tensor *pb_runner_feature(pb_runner *runner, size_t index) {
  return runner ? handle_of(runner->runner->tensor(index)) : nullptr;
}

pb_status pb_runner_evaluate(pb_runner *runner, const pb_tensor **advice, pb_error *error) {
  if (!runner || !advice)
    return null_error("a runner, or where to put the advice,", error);
  return at_edge(error, [&]() -> Status {
    const Result<const Tensor *> given = runner->runner->evaluate();
    if (!given.ok())
      return given.status();
    *advice = handle_of(*given);
    return {};
  });
}

pb_status pb_runner_evaluate_scalar(pb_runner *runner, pb_element_type type, void *value, pb_error *error) {
  if (!runner || !value)
    return null_error("a runner, or where to put the advice,", error);
  return at_edge(error, [&]() -> Status {
    if (Status fits = runner->runner->check_scalar(static_cast<ElementType>(type)); !fits.ok())
      return fits;
    const Result<const Tensor *> advice = runner->runner->evaluate();
    if (!advice.ok())
      return advice.status();
    std::memcpy(value, (*advice)->raw(), element_size((*advice)->spec().type));
    return {};
  });
}

bool pb_runner_log_probability(const pb_runner *runner, float *value) {
  const std::optional<float> log_probability = runner ? runner->runner->log_probability() : std::nullopt;
  if (log_probability && value)
    *value = *log_probability;
  return log_probability.has_value();
}

pb_status pb_runner_set_context(pb_runner *runner, const char *name, pb_error *error) {
  if (!runner || !name)
    return null_error("a runner or a context's name", error);
  return at_edge(error, [&] { return runner->runner->set_context(name); });
}

pb_status pb_runner_report(pb_runner *runner, const char *status, const pb_value *values, size_t count,
                           pb_error *error) {
  if (!runner)
    return null_error("a runner", error);
  return at_edge(error, [&]() -> Status {
    const Result<Outcome> outcome = outcome_of(status, values, count);
    return outcome.ok() ? runner->runner->report_outcome(*outcome) : outcome.status();
  });
}

pb_status pb_runner_session(pb_runner *runner, pb_session *session, pb_error *error) {
  if (!runner || !session)
    return null_error("a runner, or where to put the session,", error);
  return at_edge(error, [&]() -> Status {
    Result<SessionInfo> info = runner->runner->session();
    if (!info.ok())
      return info.status();
    runner->info = std::move(*info);
    const PolicyVersion &policy = runner->info.policy;
    *session = {runner->info.id.c_str(), policy.name.c_str(), policy.version, policy.digest.c_str()};
    return {};
  });
}

pb_status pb_runner_status(const pb_runner *runner, pb_error *error) {
  return runner ? to_c(runner->runner->status(), error) : null_error("a runner", error);
}

pb_counts pb_runner_counts(const pb_runner *runner) {
  if (!runner)
    return {};
  const RunnerCounts &counts = runner->runner->counts();
  return {counts.decisions, counts.fallbacks, counts.retries, counts.reopened};
}

void pb_runner_close(pb_runner *runner) {
  if (runner)
    runner->runner->close();
}

void pb_runner_free(pb_runner *runner) { delete runner; }
