#ifndef POLICYBRIDGE_C_HANDLES_H
#define POLICYBRIDGE_C_HANDLES_H

#include "policybridge.h"
#include "policybridge/policybridge.h"

#include <exception>
#include <new>

/// What the handles hold. A `pb_tensor` is a `policybridge::Tensor` by another name.
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

/// Tell `status` in C: its code is returned, and `error`, where there is one, gets the message.
pb_status told(const Status &status, pb_error *error) noexcept;

/// The same of a message that is no Status yet, because making one may have failed.
pb_status told(StatusCode code, const char *message, pb_error *error) noexcept;

/// "`what` is NULL", as a status.
pb_status told_null(const char *what, pb_error *error) noexcept;

/// The edge: call what gives a Status, let nothing out but a number and a message.
template <class Call> pb_status at_edge(pb_error *error, Call &&call) noexcept {
  try {
    return told(call(), error);
  } catch (const std::bad_alloc &) {
    return told(StatusCode::ResourceExhausted, "out of memory", error);
  } catch (const std::exception &failure) {
    return told(StatusCode::Internal, failure.what(), error);
  } catch (...) {
    return told(StatusCode::Internal, "an exception", error);
  }
}

/// A shape from C; InvalidArgument: `rank` sizes were promised, and there is no pointer.
Result<std::vector<std::int64_t>> shape_of(const int64_t *shape, size_t rank);

/// An outcome from C. InvalidArgument: a name is NULL.
Result<Outcome> outcome_of(const char *status, const pb_value *values, size_t count);

} // namespace policybridge::c

#endif
