#ifndef POLICYBRIDGE_C_HANDLES_H
#define POLICYBRIDGE_C_HANDLES_H

#include "policybridge.h"
#include "policybridge/policybridge.h"

#include <exception>
#include <new>

/// The C++ objects behind the handles. A `pb_tensor *` is a `policybridge::Tensor *`.
struct pb_scheme {
  policybridge::Scheme scheme;
};

struct pb_connection {
  std::shared_ptr<policybridge::Connection> connection;
};

struct pb_options {
  policybridge::OpenOptions open;
  std::vector<policybridge::TensorSpec> features;
  policybridge::TensorSpec advice;
  policybridge::RunnerOptions runner;
};

struct pb_runner {
  std::unique_ptr<policybridge::ModelRunner> runner;
  policybridge::SessionInfo info; // what pb_session's strings point into
};

namespace policybridge::c {

inline Tensor *tensor_of(pb_tensor *tensor) { return reinterpret_cast<Tensor *>(tensor); }
inline const Tensor *tensor_of(const pb_tensor *tensor) { return reinterpret_cast<const Tensor *>(tensor); }
inline pb_tensor *handle_of(Tensor *tensor) { return reinterpret_cast<pb_tensor *>(tensor); }
inline const pb_tensor *handle_of(const Tensor *tensor) { return reinterpret_cast<const pb_tensor *>(tensor); }

/// Convert a status for C: returns its code; the message goes to `error`, unless that is NULL.
pb_status to_c(const Status &status, pb_error *error) noexcept;

/// The same for a message without a Status, whose construction may itself run out of memory.
pb_status to_c(StatusCode code, const char *message, pb_error *error) noexcept;

/// The error "`what` is NULL".
pb_status null_error(const char *what, pb_error *error) noexcept;

/// The boundary to C: call a function that gives a Status; no exception leaves, only a number and a message.
template <class Call> pb_status at_edge(pb_error *error, Call &&call) noexcept {
  try {
    return to_c(call(), error);
  } catch (const std::bad_alloc &) {
    return to_c(StatusCode::ResourceExhausted, "out of memory", error);
  } catch (const std::exception &failure) {
    return to_c(StatusCode::Internal, failure.what(), error);
  } catch (...) {
    return to_c(StatusCode::Internal, "an exception", error);
  }
}

/// A shape from C. InvalidArgument: the pointer is NULL although `rank` is above 0.
Result<std::vector<std::int64_t>> shape_of(const int64_t *shape, size_t rank);

/// An outcome from C. InvalidArgument: a name is NULL.
Result<Outcome> outcome_of(const char *status, const pb_value *values, size_t count);

} // namespace policybridge::c

#endif
