#ifndef POLICYBRIDGE_H
#define POLICYBRIDGE_H

/**
 * @file
 * Ask a policy server from a compiler that is written in C.
 *
 * Every call that can fail returns a status and takes a `pb_error *`, which may be NULL; it is written where the status
 * is not PB_OK. No call ends the program or lets a C++ exception out. One thread at a time may use a handle, except
 * `pb_connection`, which any number of threads may share. Strings are UTF-8, and copied. A handle that is NULL is
 * PB_INVALID_ARGUMENT.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PB_EXPORT __attribute__((visibility("default")))
#else
#define PB_EXPORT
#endif

/** The result of a call, by gRPC's numbers. An int and not an enum, so that every number is a valid value. */
typedef int pb_status;
enum {
  PB_OK = 0,
  PB_CANCELLED = 1,
  PB_UNKNOWN = 2,
  PB_INVALID_ARGUMENT = 3,
  PB_DEADLINE_EXCEEDED = 4,
  PB_NOT_FOUND = 5,
  PB_ALREADY_EXISTS = 6,
  PB_PERMISSION_DENIED = 7,
  PB_RESOURCE_EXHAUSTED = 8,
  PB_FAILED_PRECONDITION = 9,
  PB_ABORTED = 10,
  PB_OUT_OF_RANGE = 11,
  PB_UNIMPLEMENTED = 12,
  PB_INTERNAL = 13,
  PB_UNAVAILABLE = 14,
  PB_DATA_LOSS = 15,
  PB_UNAUTHENTICATED = 16
};

/** The status's name: "NOT_FOUND". */
PB_EXPORT const char *pb_status_name(pb_status status);

/** Why a call failed. The caller owns it; nothing has to be freed. */
typedef struct pb_error {
  pb_status status;
  /** The fault and the right form; a longer message is cut. */
  char message[1024];
} pb_error;

/** Element types: LLVM's (llvm/Analysis/TensorSpec.h), bool and strings. */
typedef int pb_element_type;
enum {
  PB_FLOAT = 1,
  PB_DOUBLE = 2,
  PB_INT8 = 3,
  PB_UINT8 = 4,
  PB_INT16 = 5,
  PB_UINT16 = 6,
  PB_INT32 = 7,
  PB_UINT32 = 8,
  PB_INT64 = 9,
  PB_UINT64 = 10,
  PB_BOOL = 11,
  PB_BYTES = 12,
  PB_STRING = 13
};

/** The name on the wire ("int64_t"); and the type of a name, PB_INVALID_ARGUMENT where there is none. */
PB_EXPORT const char *pb_element_type_name(pb_element_type type);
PB_EXPORT pb_status pb_element_type_from(const char *name, pb_element_type *type, pb_error *error);

/** In a shape: a dimension whose size may differ in each observation. */
#define PB_VARIES ((int64_t)-1)

/** An element of a tensor of bytes or strings; not terminated by a zero byte. */
typedef struct pb_text {
  const char *data;
  size_t size;
} pb_text;

/** @name Connections
 * @{
 */

/** A way to one server. */
typedef struct pb_connection pb_connection;

/** A kind of connection beside `socket:` and `pipe:`: `pb_grpc_scheme()` of policybridge_grpc.h, … */
typedef struct pb_scheme pb_scheme;

/** How a connection is made. */
typedef struct pb_connect_options {
  /** Bounds every exchange with the server, in seconds: opening, each decision; more than 0. */
  double timeout;
  const pb_scheme *const *schemes;
  size_t scheme_count;
  /** For `onnx:`, the library ONNX Runtime; NULL for the default. */
  const char *onnxruntime;
  /** For `grpc:` and `grpcs:`, files: PEM certificates of those who sign the server's, the client's own certificate and
   * its key, and one that holds the token. NULL is the environment variable's: POLICYBRIDGE_TLS_CA,
   * POLICYBRIDGE_TLS_CERTIFICATE, POLICYBRIDGE_TLS_KEY, POLICYBRIDGE_TOKEN_FILE. */
  const char *tls_ca;
  const char *tls_certificate;
  const char *tls_key;
  const char *token_file;
} pb_connect_options;

/** The defaults: `pb_connect_options options = PB_CONNECT_OPTIONS;` */
#define PB_CONNECT_OPTIONS {10.0, NULL, 0, NULL, NULL, NULL, NULL, NULL}

/**
 * Make a connection; nothing is sent before it is used. `options` NULL is PB_CONNECT_OPTIONS.
 *
 * `address` is `socket:PATH`, `pipe:BASE`, or of a scheme in `options`: `grpc:HOST:PORT`, `grpcs:HOST:PORT` (TLS),
 * `grpc:unix:PATH`, `onnx:FILE`. PB_UNIMPLEMENTED: the program does not have that scheme; the message says what to link.
 */
PB_EXPORT pb_status pb_connect(const char *address, const pb_connect_options *options, pb_connection **connection,
                               pb_error *error);

/** Find out whether the server can be reached: PB_UNAVAILABLE where not, PB_DEADLINE_EXCEEDED where it is silent. */
PB_EXPORT pb_status pb_connection_check(pb_connection *connection, pb_error *error);

/** Free the connection; its runners can still be used. NULL is allowed. */
PB_EXPORT void pb_connection_free(pb_connection *connection);

/** @}
 * @name Tensors
 * @{
 */

/** One tensor's value: a feature, or the advice. It belongs to its runner. */
typedef struct pb_tensor pb_tensor;

/** The tensor's name and element type, as its spec has them. */
PB_EXPORT const char *pb_tensor_name(const pb_tensor *tensor);
PB_EXPORT pb_element_type pb_tensor_type(const pb_tensor *tensor);
/** The number of elements that it holds. */
PB_EXPORT size_t pb_tensor_count(const pb_tensor *tensor);
/** The shape that it holds, each dimension that varies filled in: `pb_tensor_rank` sizes. */
PB_EXPORT size_t pb_tensor_rank(const pb_tensor *tensor);
PB_EXPORT const int64_t *pb_tensor_shape(const pb_tensor *tensor);

/**
 * The elements, to be read and, of a feature, written; NULL where `type` is not the tensor's, or texts. They lie in
 * row-major order, and of a fixed tensor always at the same address. A bool is one byte.
 */
PB_EXPORT void *pb_tensor_data(pb_tensor *tensor, pb_element_type type);
PB_EXPORT const void *pb_tensor_values(const pb_tensor *tensor, pb_element_type type);

/** The text at `index`, valid until the tensor is set; empty where there is none. */
PB_EXPORT pb_text pb_tensor_text(const pb_tensor *tensor, size_t index);

/**
 * Set all elements, copied from `values`. With `rank` 0 the shape is the spec's own, at most one −1 filled in by the
 * count. PB_INVALID_ARGUMENT: type, shape or count do not fit; the tensor stays as it was.
 */
PB_EXPORT pb_status pb_tensor_set(pb_tensor *tensor, pb_element_type type, const void *values, size_t count,
                                  const int64_t *shape, size_t rank, pb_error *error);
PB_EXPORT pb_status pb_tensor_set_texts(pb_tensor *tensor, const pb_text *texts, size_t count, const int64_t *shape,
                                        size_t rank, pb_error *error);

/** @}
 * @name The options of a session
 * @{
 */

/** The policy that is asked for, the features and the advice, and what happens without advice. */
typedef struct pb_options pb_options;

/** Ask for `policy`: `NAME`, `NAME@VERSION` or `NAME@ALIAS`. */
PB_EXPORT pb_status pb_options_new(const char *policy, pb_options **options, pb_error *error);
PB_EXPORT void pb_options_free(pb_options *options);

/** Add the next feature, or set the advice's spec. `rank` 0 is a scalar. Features get the indices 0, 1, … */
PB_EXPORT pb_status pb_options_add_feature(pb_options *options, const char *name, pb_element_type type,
                                           const int64_t *shape, size_t rank, pb_error *error);
PB_EXPORT pb_status pb_options_set_advice(pb_options *options, const char *name, pb_element_type type,
                                          const int64_t *shape, size_t rank, pb_error *error);

/** The module, or the first function. */
PB_EXPORT pb_status pb_options_set_context(pb_options *options, const char *name, pb_error *error);
/** For the policy to read. */
PB_EXPORT pb_status pb_options_add_option(pb_options *options, const char *name, const char *value, pb_error *error);
/** For people and trainers to find the session by. */
PB_EXPORT pb_status pb_options_add_label(pb_options *options, const char *name, const char *value, pb_error *error);
/** Depart from the policy's best advice; see `Exploration` in proto/policybridge/v1/policy_service.proto. */
PB_EXPORT pb_status pb_options_set_exploration(pb_options *options, uint64_t seed, double temperature, double epsilon,
                                               pb_error *error);
/** Where decisions are made: `there`, by the server; `here`, in this process by the version's form; `auto`, the default:
 * here if it has a form that fits, else there. See `Evaluate` of the C++ library. */
PB_EXPORT pb_status pb_options_set_evaluate(pb_options *options, const char *place, pb_error *error);

/**
 * Called where there is no advice: sets `advice` by the compiler's own heuristic and returns PB_OK. `why` is the
 * failure. Any other status that it returns is the result of the evaluation.
 */
typedef pb_status (*pb_fallback)(void *user, const pb_error *why, pb_tensor *advice);

/** With a fallback, no failure of the server ends a compilation: opening a session always succeeds, and each decision
 * of the fallback is counted. */
PB_EXPORT pb_status pb_options_set_fallback(pb_options *options, pb_fallback fallback, void *user, pb_error *error);
/** How often to retry opening where the server is unavailable, and a decision where the session is still open.
 * Default 1.
 */
PB_EXPORT pb_status pb_options_set_retries(pb_options *options, unsigned retries, pb_error *error);
/** Replace a lost session by a new one on the same version; only for policies without a memory. Default false. */
PB_EXPORT pb_status pb_options_set_reopen(pb_options *options, bool reopen, pb_error *error);

/** @}
 * @name Runners
 * @{
 */

/** A session on a policy: features set in place, one decision for each evaluation. */
typedef struct pb_runner pb_runner;

/** The session and its policy version. The strings live until the runner is freed or this is called again. */
typedef struct pb_session {
  const char *id;
  const char *policy;
  uint64_t version;
  /** `sha256:` and hexadecimal digits. */
  const char *digest;
} pb_session;

/** Counts of a runner. */
typedef struct pb_counts {
  uint64_t decisions; /**< answered by the policy */
  uint64_t fallbacks; /**< decided by the fallback */
  uint64_t retries;   /**< requests that were repeated */
  uint64_t reopened;  /**< sessions opened after the first */
} pb_counts;

/** A named number of an outcome: `text` bytes, `cycles`, `seconds`, … */
typedef struct pb_value {
  const char *name;
  double value;
} pb_value;

/**
 * Open a session. `options` may be freed afterwards, or used again.
 * PB_NOT_FOUND: no such policy. PB_UNAVAILABLE: no server. PB_INVALID_ARGUMENT: a signature that does not fit, which
 * over the Unix socket is found at the first evaluation.
 */
PB_EXPORT pb_status pb_runner_open(pb_connection *connection, const pb_options *options, pb_runner **runner,
                                   pb_error *error);

/** The feature `index`; NULL where there is none. Its elements are kept from one decision to the next. */
PB_EXPORT pb_tensor *pb_runner_feature(pb_runner *runner, size_t index);

/** Evaluate the policy on the features as they are. `advice` is valid until the next call. */
PB_EXPORT pb_status pb_runner_evaluate(pb_runner *runner, const pb_tensor **advice, pb_error *error);

/** Evaluate where the advice is one element of `type`; `value` points to room for it. PB_INVALID_ARGUMENT, before
 * anything is sent: it is of another type or size. */
PB_EXPORT pb_status pb_runner_evaluate_scalar(pb_runner *runner, pb_element_type type, void *value, pb_error *error);

/** Whether the last advice has a log-probability, and which; a session that does not explore has none. */
PB_EXPORT bool pb_runner_log_probability(const pb_runner *runner, float *value);

/** Say that the following decisions belong to the function (or module) `name`. */
PB_EXPORT pb_status pb_runner_set_context(pb_runner *runner, const char *name, pb_error *error);

/** Report the outcome: a status in one word (`ok`, `crash`, …, or empty), and named numbers. PB_OK: the ledger holds
 * it. */
PB_EXPORT pb_status pb_runner_report(pb_runner *runner, const char *status, const pb_value *values, size_t count,
                                     pb_error *error);

/** The same for any session by its id, from any process, also after its end. PB_NOT_FOUND: the ledger has no such
 * session. */
PB_EXPORT pb_status pb_connection_report(pb_connection *connection, const char *session_id, const char *status,
                                         const pb_value *values, size_t count, pb_error *error);

/** The exact version that answers. PB_UNIMPLEMENTED over `pipe:`, which does not carry it. */
PB_EXPORT pb_status pb_runner_session(pb_runner *runner, pb_session *session, pb_error *error);

/** PB_OK while the policy decides; else why it no longer does. */
PB_EXPORT pb_status pb_runner_status(const pb_runner *runner, pb_error *error);
PB_EXPORT pb_counts pb_runner_counts(const pb_runner *runner);

/** End the session; the runner's tensors and counts stay valid. */
PB_EXPORT void pb_runner_close(pb_runner *runner);

/** End the session, and free the runner with its tensors. NULL is allowed. */
PB_EXPORT void pb_runner_free(pb_runner *runner);

/** @} */

#ifdef __cplusplus
}
#endif

#endif
