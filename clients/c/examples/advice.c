/* Asks a policy whether to inline a call:
 *   cc -o advice advice.c $(pkg-config --cflags --libs policybridge-c)
 *   ./advice socket:policybridge.sock POLICY
 *
 * The policy decides by `cost_estimate` alone, or fills what else it takes: it is told no other feature here. */

#include <policybridge.h>
#include <stdio.h>

static const int64_t one[] = {1};

/* Where there is no advice, the compiler's own heuristic decides. */
static pb_status by_cost(void *cost, const pb_error *why, pb_tensor *advice) {
  const int64_t decision = *(const int64_t *)cost < 225;
  fprintf(stderr, "no advice: %s\n", why->message);
  return pb_tensor_set(advice, PB_INT64, &decision, 1, NULL, 0, NULL);
}

int main(int count, char **words) {
  int64_t cost = 100, decision = 0;
  pb_connection *server = NULL;
  pb_options *options = NULL;
  pb_runner *runner = NULL;
  pb_error error;
  int status = 1;
  if (count == 3 && !pb_connect(words[1], NULL, &server, &error) && !pb_options_new(words[2], &options, &error) &&
      !pb_options_add_feature(options, "cost_estimate", PB_INT64, one, 1, &error) &&
      !pb_options_set_advice(options, "decision", PB_INT64, one, 1, &error) &&
      !pb_options_set_fallback(options, by_cost, &cost, &error) && !pb_runner_open(server, options, &runner, &error)) {
    int64_t *feature = pb_tensor_data(pb_runner_feature(runner, 0), PB_INT64);
    *feature = cost;
    if (!pb_runner_evaluate_scalar(runner, PB_INT64, &decision, &error)) {
      printf("%s\n", decision ? "inline" : "call");
      status = 0;
    }
  }
  if (status)
    fprintf(stderr, "%s\n", count == 3 ? error.message : "usage: advice ADDRESS POLICY");
  pb_runner_free(runner);
  pb_options_free(options);
  pb_connection_free(server);
  return status;
}
