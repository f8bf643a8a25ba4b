#ifndef POLICYBRIDGE_GRPC_MESSAGES_H
#define POLICYBRIDGE_GRPC_MESSAGES_H

#include "policybridge/session.h"
#include "policybridge/tensor_spec.h"
#include "policybridge/v1/policy_service.pb.h"

namespace policybridge {

/// Limit in bytes of an observation or an advice; it is the server's default limit.
inline constexpr std::size_t largest_values = std::size_t{64} << 20;

v1::Signature to_message(const Signature &signature);

/// The first message of a session.
v1::Open to_message(const OpenOptions &options, const Signature &signature);

v1::Outcome to_message(const Outcome &outcome);

/// The session and its policy version, from the server's first message.
SessionInfo from_message(const v1::Opened &opened);

} // namespace policybridge

#endif
