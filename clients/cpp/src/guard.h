#ifndef POLICYBRIDGE_SRC_GUARD_H
#define POLICYBRIDGE_SRC_GUARD_H

#include "policybridge/status.h"

#include <exception>
#include <new>

namespace policybridge {

/// Call a function that may throw, because it allocates memory or runs the user's code, and turn an exception into a
/// status.
template <class Call> auto guarded(Call &&call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc &) {
    return Status(StatusCode::ResourceExhausted, "out of memory");
  } catch (const std::exception &error) {
    return internal_error(error.what());
  } catch (...) {
    return internal_error("an exception");
  }
}

} // namespace policybridge

#endif
