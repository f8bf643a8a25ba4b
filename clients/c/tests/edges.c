/* The edges of the C ABI: a caller's mistake is a status, and never a crash. `edges ADDRESS` asks the policy
 * `sum`. */

#define _POSIX_C_SOURCE 200809L

#include "policybridge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

static int failures;

static void expect(int line, int holds, const char *what) {
  if (!holds) {
    printf("line %d: %s\n", line, what);
    ++failures;
  }
}

#define EXPECT(condition) expect(__LINE__, condition, #condition)

static const int64_t one[] = {1};
static const int64_t varying[] = {PB_VARIES};

static void null_is_an_invalid_argument(void) {
  pb_error error;
  pb_connection *connection = NULL;
  EXPECT(pb_connect(NULL, NULL, &connection, &error) == PB_INVALID_ARGUMENT);
  EXPECT(strstr(error.message, "NULL") != NULL);
  EXPECT(pb_connect("socket:x", NULL, NULL, NULL) == PB_INVALID_ARGUMENT);
  EXPECT(pb_connection_check(NULL, &error) == PB_INVALID_ARGUMENT);
  EXPECT(pb_connection_report(NULL, "s", "ok", NULL, 0, &error) == PB_INVALID_ARGUMENT);
  EXPECT(pb_options_new(NULL, NULL, &error) == PB_INVALID_ARGUMENT);
  EXPECT(pb_options_add_feature(NULL, "x", PB_INT64, one, 1, &error) == PB_INVALID_ARGUMENT);
  EXPECT(pb_options_add_label(NULL, "x", "y", &error) == PB_INVALID_ARGUMENT);
  EXPECT(pb_options_set_fallback(NULL, NULL, NULL, &error) == PB_INVALID_ARGUMENT);
  EXPECT(pb_runner_open(NULL, NULL, NULL, &error) == PB_INVALID_ARGUMENT);
  EXPECT(pb_runner_evaluate(NULL, NULL, &error) == PB_INVALID_ARGUMENT);
  EXPECT(pb_runner_report(NULL, "ok", NULL, 0, &error) == PB_INVALID_ARGUMENT);
  EXPECT(pb_runner_session(NULL, NULL, &error) == PB_INVALID_ARGUMENT);
  EXPECT(pb_runner_status(NULL, &error) == PB_INVALID_ARGUMENT);
  EXPECT(pb_runner_feature(NULL, 0) == NULL);
  EXPECT(pb_tensor_set(NULL, PB_INT64, NULL, 0, NULL, 0, &error) == PB_INVALID_ARGUMENT);
  EXPECT(pb_tensor_data(NULL, PB_INT64) == NULL);
  EXPECT(pb_tensor_text(NULL, 0).size == 0);
  pb_runner_close(NULL);
  pb_runner_free(NULL);
  pb_options_free(NULL);
  pb_connection_free(NULL);
}

static void what_is_out_of_range_is_an_invalid_argument(void) {
  pb_error error;
  pb_connection *connection = NULL;
  pb_options *options = NULL;
  pb_connect_options connect = PB_CONNECT_OPTIONS;
  connect.timeout = -1;
  EXPECT(pb_connect("socket:x", &connect, &connection, &error) == PB_INVALID_ARGUMENT);
  connect.timeout = 1e300;
  connect.scheme_count = 1;
  EXPECT(pb_connect("socket:x", &connect, &connection, &error) == PB_INVALID_ARGUMENT);
  EXPECT(connection == NULL);
  EXPECT(pb_options_new("p@99999999999999999999999", &options, &error) == PB_INVALID_ARGUMENT);
  EXPECT(pb_options_new("p", &options, &error) == PB_OK);
  EXPECT(pb_options_add_feature(options, "x", 99, one, 1, &error) == PB_INVALID_ARGUMENT);
  EXPECT(strstr(error.message, "99") != NULL);
  EXPECT(pb_options_add_feature(options, "x", PB_INT64, NULL, 1, &error) == PB_INVALID_ARGUMENT);
  pb_element_type type = PB_INT64;
  EXPECT(pb_element_type_from("int65_t", &type, &error) == PB_INVALID_ARGUMENT);
  EXPECT(strcmp(pb_status_name(PB_NOT_FOUND), "NOT_FOUND") == 0);
  EXPECT(strcmp(pb_status_name(99), "UNKNOWN") == 0);
  pb_options_free(options);
}

static void a_long_message_is_cut_between_characters(void) {
  pb_error error;
  pb_options *options = NULL;
  char name[4001];
  for (size_t n = 0; n < 4000; n += 2)
    memcpy(name + n, "\xC3\xB6", 2);
  name[4000] = '\0';
  EXPECT(pb_options_new("p", &options, &error) == PB_OK);
  const int64_t shape[] = {-2};
  EXPECT(pb_options_add_feature(options, name, PB_INT64, shape, 1, &error) == PB_INVALID_ARGUMENT);
  const size_t length = strlen(error.message);
  EXPECT(length == sizeof error.message - 1 || length == sizeof error.message - 2);
  EXPECT(error.message[length - 2] == '\xC3' && error.message[length - 1] == '\xB6');
  pb_options_free(options);
}

static pb_status fail(void *user, const pb_error *why, pb_tensor *advice) {
  EXPECT(why->status == PB_UNAVAILABLE && why->message[0]);
  EXPECT(pb_tensor_type(advice) == PB_INT64);
  ++*(int *)user;
  return PB_ABORTED;
}

static void a_fallback_may_fail_too(void) {
  pb_error error;
  pb_connection *connection = NULL;
  pb_options *options = NULL;
  pb_runner *runner = NULL;
  const pb_tensor *advice = NULL;
  int asked = 0;
  EXPECT(pb_connect("socket:/nowhere/s.sock", NULL, &connection, &error) == PB_OK);
  EXPECT(pb_options_new("p", &options, &error) == PB_OK);
  EXPECT(pb_options_set_advice(options, "a", PB_INT64, NULL, 0, &error) == PB_OK);
  EXPECT(pb_options_set_retries(options, 0, &error) == PB_OK);
  EXPECT(pb_runner_open(connection, options, &runner, &error) == PB_UNAVAILABLE && runner == NULL);
  EXPECT(pb_options_set_fallback(options, fail, &asked, &error) == PB_OK);
  EXPECT(pb_runner_open(connection, options, &runner, &error) == PB_OK);
  pb_connection_free(connection);
  pb_options_free(options);
  EXPECT(pb_runner_evaluate(runner, &advice, &error) == PB_ABORTED && advice == NULL);
  EXPECT(strstr(error.message, "/nowhere/s.sock") != NULL);
  EXPECT(asked == 1 && pb_runner_counts(runner).fallbacks == 0);
  EXPECT(pb_runner_status(runner, &error) == PB_UNAVAILABLE);
  pb_runner_free(runner);
}

/* A runner with a connection and options no longer needs these. */
static void a_runner_outlives_what_it_was_made_of(const char *address) {
  pb_error error;
  pb_connection *connection = NULL;
  pb_options *options = NULL;
  pb_runner *runner = NULL;
  EXPECT(pb_connect(address, NULL, &connection, &error) == PB_OK);
  EXPECT(pb_options_new("sum", &options, &error) == PB_OK);
  EXPECT(pb_options_add_feature(options, "a", PB_INT64, one, 1, &error) == PB_OK);
  EXPECT(pb_options_add_feature(options, "b", PB_INT64, one, 1, &error) == PB_OK);
  EXPECT(pb_options_add_feature(options, "v", PB_INT64, varying, 1, &error) == PB_OK);
  EXPECT(pb_options_set_advice(options, "sum", PB_INT64, one, 1, &error) == PB_OK);
  EXPECT(pb_runner_open(connection, options, &runner, &error) == PB_OK);
  pb_connection_free(connection);
  pb_options_free(options);
  int64_t *a = pb_tensor_data(pb_runner_feature(runner, 0), PB_INT64);
  EXPECT(a != NULL && pb_tensor_data(pb_runner_feature(runner, 0), PB_FLOAT) == NULL);
  EXPECT(pb_runner_feature(runner, 3) == NULL);
  int64_t sum = 0;
  *a = 42;
  EXPECT(pb_runner_evaluate_scalar(runner, PB_INT64, &sum, &error) == PB_OK && sum == 42);
  EXPECT(strcmp(pb_tensor_name(pb_runner_feature(runner, 1)), "b") == 0);

  /* Out of memory: the allocation is refused before a single value is looked at. */
  struct rlimit limit;
  getrlimit(RLIMIT_AS, &limit);
  const struct rlimit small = {(rlim_t)256 << 20, limit.rlim_max};
  if (getenv("POLICYBRIDGE_LIMIT_MEMORY") && setrlimit(RLIMIT_AS, &small) == 0) {
    pb_tensor *tensor = pb_runner_feature(runner, 2);
    EXPECT(pb_tensor_set(tensor, PB_INT64, &sum, (size_t)1 << 27, NULL, 0, &error) == PB_RESOURCE_EXHAUSTED);
    EXPECT(strcmp(error.message, "out of memory") == 0);
    EXPECT(pb_tensor_count(tensor) == 0);
    setrlimit(RLIMIT_AS, &limit);
  }
  EXPECT(pb_runner_evaluate_scalar(runner, PB_INT64, &sum, &error) == PB_OK && sum == 42);
  pb_runner_free(runner);
}

int main(int count, char **words) {
  if (count != 2)
    return 2;
  null_is_an_invalid_argument();
  what_is_out_of_range_is_an_invalid_argument();
  a_long_message_is_cut_between_characters();
  a_fallback_may_fail_too();
  a_runner_outlives_what_it_was_made_of(words[1]);
  return failures != 0;
}
