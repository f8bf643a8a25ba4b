"""References, versions, session options and outcomes as messages of the policy service, for server and client."""

from math import isnan, nan

from policybridge.v1 import policy_service_pb2 as pb
from policybridge_core.errors import InvalidError
from policybridge_serdes import Exploration, Outcome, PolicyReference, PolicyVersion, SessionOptions
from policybridge_serdes.limits import MessageLimits


def reference_to_pb(reference: PolicyReference) -> pb.PolicyReference:
    """Make the PolicyReference message of ``reference``."""
    message = pb.PolicyReference(name=reference.name)
    if reference.version is not None:
        message.version = reference.version
    if reference.alias is not None:
        message.alias = reference.alias
    return message


def reference_from_pb(message: pb.PolicyReference) -> PolicyReference:
    """Read a PolicyReference message."""
    which = message.WhichOneof("which")
    return PolicyReference(
        message.name,
        version=message.version if which == "version" else None,
        alias=message.alias if which == "alias" else None,
    )


def version_to_pb(policy: PolicyVersion) -> pb.PolicyVersion:
    """Make the PolicyVersion message of ``policy``."""
    return pb.PolicyVersion(name=policy.name, version=policy.version, digest=policy.digest)


def version_from_pb(message: pb.PolicyVersion) -> PolicyVersion:
    """Read a PolicyVersion message."""
    return PolicyVersion(message.name, message.version, message.digest)


def exploration_to_pb(exploration: Exploration | None) -> pb.Exploration | None:
    """Make the Exploration message of ``exploration``."""
    if exploration is None:
        return None
    return pb.Exploration(seed=exploration.seed, temperature=exploration.temperature, epsilon=exploration.epsilon)


def options_from_pb(message: pb.Open) -> SessionOptions:
    """Read the options in an Open message.

    Raises:
        InvalidError: a value of the exploration is out of its range.

    """
    exploration = None
    if message.HasField("exploration"):
        given = message.exploration
        exploration = Exploration(given.seed, given.temperature, given.epsilon)
    return SessionOptions(
        message.context, dict(message.options), dict(message.labels), exploration, evaluates=message.evaluates
    )


def outcome_to_pb(outcome: Outcome) -> pb.Outcome:
    """Make the Outcome message of ``outcome``."""
    message = pb.Outcome(values=outcome.values, status=outcome.status)
    rows = outcome.contexts.values()
    message.contexts.contexts.extend(outcome.contexts)
    for name in sorted({name for row in rows for name in row}):
        message.contexts.columns[name].values.extend(row.get(name, nan) for row in rows)
    return message


def outcome_from_pb(message: pb.Outcome) -> Outcome:
    """Read an Outcome message.

    Raises:
        InvalidError: a name is empty, a number is not finite, or a column has not one number for each context.

    """
    contexts: dict[str, dict[str, float]] = {context: {} for context in message.contexts.contexts}
    for name, column in message.contexts.columns.items():
        count = len(message.contexts.contexts)
        if len(column.values) != count:
            raise InvalidError(f"the column {name!r} has {len(column.values)} numbers for {count} contexts")
        for context, value in zip(message.contexts.contexts, column.values, strict=True):
            if not isnan(value):
                contexts[context][name] = value
    return Outcome(dict(message.values), message.status, contexts)


def check_outcome(message: pb.Outcome, limits: MessageLimits) -> None:
    """Check that an Outcome message is not too large.

    Raises:
        TooLargeError: it is.

    """
    given = message.contexts
    numbers = sum(len(column.values) for column in given.columns.values())
    limits.check_outcome(len(message.values), max(numbers, len(given.contexts)))
