#ifndef POLICYBRIDGE_SRC_SESSION_FORMS_H
#define POLICYBRIDGE_SRC_SESSION_FORMS_H

#include "policybridge/form.h"
#include "policybridge/session.h"

#include <optional>
#include <string>

namespace policybridge {

/// Whether a session takes forms that is to be evaluated so; see `Evaluate`.
bool takes_forms(Evaluate evaluate, const TensorSpec &advice);

/// The form that decides on a kind in a session of these options with `server`; null if there is none.
const FormReference *form_for(const SessionInfo &info, const std::string &kind, Evaluate evaluate, const Session &server);

/// Read a form of a session, from the cache of this user or from the server. Nothing if this client cannot read it.
/// Errors as `Session::form`. InvalidArgument: the server sent another one. ResourceExhausted: it is too large.
Result<std::optional<Form>> read_form(Session &server, const FormReference &reference);

} // namespace policybridge

#endif
