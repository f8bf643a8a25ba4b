"""Our words from the protocol's messages, and back."""

from policybridge.v1 import policy_service_pb2 as pb
from policybridge_serdes import Exploration, Outcome, PolicyReference, PolicyVersion, SessionOptions


def reference_from_pb(message: pb.PolicyReference) -> PolicyReference:
    """Read which policy is asked for."""
    which = message.WhichOneof("which")
    return PolicyReference(
        message.name,
        version=message.version if which == "version" else None,
        alias=message.alias if which == "alias" else None,
    )


def version_to_pb(policy: PolicyVersion) -> pb.PolicyVersion:
    """Write which version it is."""
    return pb.PolicyVersion(name=policy.name, version=policy.version, digest=policy.digest)


def options_from_pb(message: pb.Open) -> SessionOptions:
    """Read what a session is opened with.

    Raises:
        InvalidError: a value of the exploration is out of its range.

    """
    asked = message.exploration
    exploration = None
    if message.HasField("exploration"):
        exploration = Exploration(asked.seed, asked.temperature, asked.epsilon)
    return SessionOptions(message.context, dict(message.options), dict(message.labels), exploration)


def outcome_from_pb(message: pb.Outcome) -> Outcome:
    """Read what a compilation came to."""
    return Outcome(dict(message.values), message.status)
