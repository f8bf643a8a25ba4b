#ifndef POLICYBRIDGE_GRPC_MESSAGES_H
#define POLICYBRIDGE_GRPC_MESSAGES_H

#include "policybridge/session.h"
#include "policybridge/tensor_spec.h"
#include "policybridge/v1/policy_service.pb.h"

namespace policybridge {

/// Most bytes of an observation or an advice: the server's own limit, unless its operator set another.
inline constexpr std::size_t largest_values = std::size_t{64} << 20;

/// The first message of a session.
v1::Open to_message(const OpenOptions &options, const Signature &signature);

v1::Outcome to_message(const Outcome &outcome);

/// Who answers, by the server's first message.
SessionInfo from_message(const v1::Opened &opened);

} // namespace policybridge

#endif
