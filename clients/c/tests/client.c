/* A client that does what its standard input says, one line one answer, by the C ABI alone: the commands of
 * clients/cpp/tests/client.cpp, for tests/native/library/test_client.py. */

#define _POSIX_C_SOURCE 200809L

#include "policybridge.h"

#ifdef POLICYBRIDGE_WITH_GRPC
#include "policybridge_grpc.h"
#endif

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_RANK = 32, MAX_RUNNERS = 64 };

typedef struct Client {
  pb_connection *connection;
  pb_options *options;
  pb_runner *runners[MAX_RUNNERS];
  size_t current;
  char *fallback; /* the values that the fallback of the runner sets */
} Client;

static pb_error error;

static pb_runner *runner(const Client *client) { return client->runners[client->current]; }

static void answer(pb_status status) {
  if (status == PB_OK) {
    printf("ok");
    return;
  }
  printf("error %s :", pb_status_name(error.status));
  for (const char *next = error.message; *next; ++next)
    printf("%%%02X", (unsigned)(unsigned char)*next);
}

static char *word(char **rest) {
  char *begin = *rest;
  if (!begin)
    return NULL;
  char *end = strchr(begin, ' ');
  *rest = end ? end + 1 : NULL;
  if (end)
    *end = '\0';
  return begin;
}

/* Decode a text word in place; give its length. */
static size_t decode(char *text) {
  char *to = text;
  for (const char *from = text + 1; *from; ++from) {
    if (*from == '%') {
      const char digits[3] = {from[1], from[2], '\0'};
      *to++ = (char)strtoul(digits, NULL, 16);
      from += 2;
    } else {
      *to++ = *from;
    }
  }
  *to = '\0';
  return (size_t)(to - text);
}

static char *text(char **rest) {
  char *text = word(rest);
  decode(text);
  return text;
}

static size_t parse_shape(char *written, int64_t *shape) {
  size_t rank = 0;
  if (written[0] == '-' && !written[1])
    return 0;
  for (char *next = written; *next; next += *next == ',')
    shape[rank++] = strtoll(next, &next, 10);
  return rank;
}

static size_t element_size(pb_element_type type) {
  switch (type) {
  case PB_FLOAT:
  case PB_INT32:
  case PB_UINT32:
    return 4;
  case PB_INT16:
  case PB_UINT16:
    return 2;
  case PB_INT8:
  case PB_UINT8:
  case PB_BOOL:
    return 1;
  default:
    return 8;
  }
}

static void parse_element(pb_element_type type, const char *written, void *to) {
  const int64_t whole = strtoll(written, NULL, 10);
  const uint64_t natural = strtoull(written, NULL, 10);
  switch (type) {
  case PB_FLOAT:
    *(float *)to = strtof(written, NULL);
    break;
  case PB_DOUBLE:
    *(double *)to = strtod(written, NULL);
    break;
  case PB_UINT64:
    memcpy(to, &natural, sizeof natural);
    break;
  default: /* little endian: the low bytes come first */
    memcpy(to, &whole, element_size(type));
  }
}

static void print_element(pb_element_type type, const void *from) {
  switch (type) {
  case PB_FLOAT:
    printf("%.17g", (double)*(const float *)from);
    break;
  case PB_DOUBLE:
    printf("%.17g", *(const double *)from);
    break;
  case PB_INT8:
    printf("%" PRId8, *(const int8_t *)from);
    break;
  case PB_UINT8:
    printf("%" PRIu8, *(const uint8_t *)from);
    break;
  case PB_INT16:
    printf("%" PRId16, *(const int16_t *)from);
    break;
  case PB_UINT16:
    printf("%" PRIu16, *(const uint16_t *)from);
    break;
  case PB_INT32:
    printf("%" PRId32, *(const int32_t *)from);
    break;
  case PB_UINT32:
    printf("%" PRIu32, *(const uint32_t *)from);
    break;
  case PB_INT64:
    printf("%" PRId64, *(const int64_t *)from);
    break;
  case PB_UINT64:
    printf("%" PRIu64, *(const uint64_t *)from);
    break;
  default:
    printf("%d", *(const bool *)from);
  }
}

static void print_tensor(const pb_tensor *tensor) {
  const pb_element_type type = pb_tensor_type(tensor);
  const size_t rank = pb_tensor_rank(tensor);
  printf(rank ? " " : " -");
  for (size_t n = 0; n < rank; ++n)
    printf(n ? ",%" PRId64 : "%" PRId64, pb_tensor_shape(tensor)[n]);
  const char *elements = pb_tensor_values(tensor, type);
  for (size_t n = 0; n < pb_tensor_count(tensor); ++n) {
    printf(" ");
    if (elements) {
      print_element(type, elements + n * element_size(type));
      continue;
    }
    const pb_text held = pb_tensor_text(tensor, n);
    printf(":");
    for (size_t byte = 0; byte < held.size; ++byte)
      printf("%%%02X", (unsigned)(unsigned char)held.data[byte]);
  }
}

/* Set a tensor from words: numbers or texts. */
static pb_status assign(pb_tensor *tensor, const int64_t *shape, size_t rank, char *rest) {
  const pb_element_type type = pb_tensor_type(tensor);
  const size_t length = rest ? strlen(rest) : 0;
  size_t count = 0;
  pb_status status;
  if (type == PB_BYTES || type == PB_STRING) {
    pb_text *texts = calloc(length + 1, sizeof *texts);
    for (char *next; (next = word(&rest)); ++count) {
      texts[count].size = decode(next);
      texts[count].data = next;
    }
    status = pb_tensor_set_texts(tensor, texts, count, shape, rank, &error);
    free(texts);
    return status;
  }
  char *values = calloc(length + 1, 8);
  for (char *next; (next = word(&rest)); ++count)
    parse_element(type, next, values + count * element_size(type));
  status = pb_tensor_set(tensor, type, values, count, shape, rank, &error);
  free(values);
  return status;
}

static void run_connect(Client *client, char *rest) {
  pb_connect_options options = PB_CONNECT_OPTIONS;
#ifdef POLICYBRIDGE_WITH_GRPC
  const pb_scheme *schemes[] = {pb_grpc_scheme(), pb_grpcs_scheme()};
  options.schemes = schemes;
  options.scheme_count = 2;
#endif
  const char *address = word(&rest);
  options.timeout = strtod(word(&rest), NULL);
  pb_connection_free(client->connection);
  client->connection = NULL;
  answer(pb_connect(address, &options, &client->connection, &error));
}

/* `use N`: what follows is about the runner N. */
static void run_use(Client *client, char *rest) {
  client->current = strtoul(word(&rest), NULL, 10);
  answer(PB_OK);
}

static void run_check(Client *client, char *rest) {
  (void)rest;
  answer(pb_connection_check(client->connection, &error));
}

typedef pb_status (*add_spec)(pb_options *, const char *, pb_element_type, const int64_t *, size_t, pb_error *);

static void run_spec(Client *client, char *rest, add_spec add) {
  const char *name = text(&rest);
  int64_t shape[MAX_RANK];
  pb_element_type type;
  pb_status status = pb_element_type_from(word(&rest), &type, &error);
  const size_t rank = parse_shape(word(&rest), shape);
  if (status == PB_OK)
    status = add(client->options, name, type, shape, rank, &error);
  answer(status);
}

static void run_feature(Client *client, char *rest) { run_spec(client, rest, pb_options_add_feature); }
static void run_advice(Client *client, char *rest) { run_spec(client, rest, pb_options_set_advice); }

static void run_option(Client *client, char *rest) {
  const char *name = text(&rest);
  answer(pb_options_add_option(client->options, name, text(&rest), &error));
}

static void run_label(Client *client, char *rest) {
  const char *name = text(&rest);
  answer(pb_options_add_label(client->options, name, text(&rest), &error));
}

static void run_explore(Client *client, char *rest) {
  const uint64_t seed = strtoull(word(&rest), NULL, 10);
  const double temperature = strtod(word(&rest), NULL);
  const double epsilon = strtod(word(&rest), NULL);
  answer(pb_options_set_exploration(client->options, seed, temperature, epsilon, &error));
}

static void run_place(Client *client, char *rest) {
  answer(pb_options_set_evaluate(client->options, word(&rest), &error));
}

static pb_status fall_back(void *user, const pb_error *why, pb_tensor *advice) {
  (void)why;
  char *values = strdup(user);
  const pb_status status = assign(advice, NULL, 0, values);
  free(values);
  return status;
}

static void run_fallback(Client *client, char *rest) {
  free(client->fallback);
  client->fallback = strdup(rest);
  answer(pb_options_set_fallback(client->options, fall_back, client->fallback, &error));
}

static void run_reopen(Client *client, char *rest) {
  (void)rest;
  answer(pb_options_set_reopen(client->options, true, &error));
}

/* Begin the options of a session. */
static void run_policy(Client *client, char *rest) {
  pb_options_free(client->options);
  client->options = NULL;
  answer(pb_options_new(text(&rest), &client->options, &error));
}

static void run_open(Client *client, char *rest) {
  (void)rest;
  pb_runner_free(runner(client));
  client->runners[client->current] = NULL;
  answer(pb_runner_open(client->connection, client->options, &client->runners[client->current], &error));
}

static void run_session(Client *client, char *rest) {
  (void)rest;
  pb_session session;
  const pb_status status = pb_runner_session(runner(client), &session, &error);
  answer(status);
  if (status == PB_OK)
    printf(" :%s :%s %" PRIu64 " :%s", session.id, session.policy, session.version, session.digest);
}

static void run_set(Client *client, char *rest) {
  pb_tensor *tensor = pb_runner_feature(runner(client), strtoul(word(&rest), NULL, 10));
  int64_t shape[MAX_RANK];
  char *written = word(&rest);
  const size_t rank = written[0] == '?' ? 0 : parse_shape(written, shape);
  answer(assign(tensor, shape, rank, rest));
}

static void run_write(Client *client, char *rest) {
  pb_tensor *tensor = pb_runner_feature(runner(client), strtoul(word(&rest), NULL, 10));
  pb_element_type type;
  if (pb_element_type_from(word(&rest), &type, &error) != PB_OK) {
    answer(error.status);
    return;
  }
  char *buffer = pb_tensor_data(tensor, type);
  if (!buffer) {
    printf("null");
    return;
  }
  for (char *next; (next = word(&rest)); buffer += element_size(type))
    parse_element(type, next, buffer);
  answer(PB_OK);
}

static void run_get(Client *client, char *rest) {
  answer(PB_OK);
  print_tensor(pb_runner_feature(runner(client), strtoul(word(&rest), NULL, 10)));
}

static void run_evaluate(Client *client, char *rest) {
  (void)rest;
  const pb_tensor *advice = NULL;
  const pb_status status = pb_runner_evaluate(runner(client), &advice, &error);
  answer(status);
  if (status == PB_OK)
    print_tensor(advice);
}

static void run_scalar(Client *client, char *rest) {
  pb_element_type type;
  uint64_t value = 0;
  pb_status status = pb_element_type_from(word(&rest), &type, &error);
  if (status == PB_OK)
    status = pb_runner_evaluate_scalar(runner(client), type, &value, &error);
  answer(status);
  if (status == PB_OK) {
    printf(" ");
    print_element(type, &value);
  }
}

static void run_chance(Client *client, char *rest) {
  (void)rest;
  float chance = 0;
  if (pb_runner_log_probability(runner(client), &chance))
    printf("ok %.17g", (double)chance);
  else
    printf("null");
}

static void run_context(Client *client, char *rest) {
  const char *name = text(&rest);
  answer(runner(client) ? pb_runner_set_context(runner(client), name, &error)
                        : pb_options_set_context(client->options, name, &error));
}

static size_t parse_values(char *rest, pb_value *values) {
  size_t count = 0;
  for (; rest && count < MAX_RANK; ++count) {
    values[count].name = text(&rest);
    values[count].value = strtod(word(&rest), NULL);
  }
  return count;
}

static void run_report(Client *client, char *rest) {
  pb_value values[MAX_RANK];
  const char *status = text(&rest);
  const size_t count = parse_values(rest, values);
  answer(pb_runner_report(runner(client), status, values, count, &error));
}

static void run_report_other(Client *client, char *rest) {
  pb_value values[MAX_RANK];
  const char *session = text(&rest);
  const char *status = text(&rest);
  const size_t count = parse_values(rest, values);
  answer(pb_connection_report(client->connection, session, status, values, count, &error));
}

static void run_status(Client *client, char *rest) {
  (void)rest;
  answer(pb_runner_status(runner(client), &error));
}

static void run_counts(Client *client, char *rest) {
  (void)rest;
  const pb_counts counts = pb_runner_counts(runner(client));
  printf("ok %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64, counts.decisions, counts.fallbacks, counts.retries,
         counts.reopened);
}

static void run_close(Client *client, char *rest) {
  (void)rest;
  pb_runner_close(runner(client));
  answer(PB_OK);
}

static void run_release(Client *client, char *rest) {
  (void)rest;
  pb_runner_free(runner(client));
  client->runners[client->current] = NULL;
  answer(PB_OK);
}

static void run_disconnect(Client *client, char *rest) {
  (void)rest;
  pb_connection_free(client->connection);
  client->connection = NULL;
  answer(PB_OK);
}

static int compare(const void *left, const void *right) {
  const int64_t difference = *(const int64_t *)left - *(const int64_t *)right;
  return (difference > 0) - (difference < 0);
}

static int64_t now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static void run_bench(Client *client, char *rest) {
  const size_t count = strtoul(word(&rest), NULL, 10);
  int64_t *times = calloc(count, sizeof *times);
  pb_status status = PB_OK;
  for (size_t n = 0; n < count && status == PB_OK; ++n) {
    const pb_tensor *advice;
    const int64_t begun = now();
    status = pb_runner_evaluate(runner(client), &advice, &error);
    times[n] = now() - begun;
  }
  answer(status);
  qsort(times, count, sizeof *times, compare);
  if (status == PB_OK)
    printf(" %" PRId64 " %" PRId64, times[count / 2], times[count * 99 / 100]);
  free(times);
}

typedef struct command {
  const char *name;
  void (*run)(Client *, char *);
} command;

static const command commands[] = {
    {"connect", run_connect},       {"check", run_check},
    {"policy", run_policy},         {"feature", run_feature},
    {"advice", run_advice},         {"option", run_option},
    {"label", run_label},           {"explore", run_explore},
    {"fallback", run_fallback},     {"use", run_use},
    {"reopen", run_reopen},         {"open", run_open},
    {"session", run_session},       {"set", run_set},
    {"write", run_write},           {"get", run_get},
    {"evaluate", run_evaluate},     {"scalar", run_scalar},
    {"chance", run_chance},         {"context", run_context},
    {"report", run_report},         {"report_other", run_report_other},
    {"status", run_status},         {"counts", run_counts},
    {"close", run_close},           {"release", run_release},
    {"disconnect", run_disconnect}, {"bench", run_bench},
    {"place", run_place},
};

static void run(Client *client, char *line) {
  const char *name = word(&line);
  for (size_t n = 0; n < sizeof commands / sizeof *commands; ++n) {
    if (strcmp(commands[n].name, name) == 0) {
      commands[n].run(client, line);
      return;
    }
  }
  printf("error no such command: %s", name);
}

int main(void) {
  Client client = {0};
  char *line = NULL;
  size_t capacity = 0;
  for (ssize_t length; (length = getline(&line, &capacity, stdin)) > 0;) {
    line[strcspn(line, "\n")] = '\0';
    run(&client, line);
    printf("\n");
    fflush(stdout);
  }
  free(line);
  for (size_t n = 0; n < MAX_RUNNERS; ++n)
    pb_runner_free(client.runners[n]);
  pb_options_free(client.options);
  pb_connection_free(client.connection);
  free(client.fallback);
  return 0;
}
