#ifndef POLICYBRIDGE_SRC_LOCAL_SESSION_H
#define POLICYBRIDGE_SRC_LOCAL_SESSION_H

#include "policybridge/connection.h"
#include "policybridge/session.h"
#include "policybridge/tensor_spec.h"

#include <memory>

namespace policybridge {

/// Open a session, and make its decisions in this process where `options` want it: by the forms of its version. Those of
/// a kind without a form, or of a signature that the form does not fit, are asked for. The session stays one with the
/// server, which gets the decisions in bulk; if it goes away, they go on, by the same version.
///
/// Errors as `Connection::open` and `Session::form`. FailedPrecondition: `Evaluate::Here`, and the version has no form.
Result<std::unique_ptr<Session>> open_session(Connection &connection, const OpenOptions &options,
                                              const Signature &signature);

} // namespace policybridge

#endif
