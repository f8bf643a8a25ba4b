"""Errors, as classes that carry their gRPC status.

The server raises them and maps them to a status once, at the edge. A client gets the status and raises the same class.
"""

from enum import IntEnum
from typing import ClassVar


class Status(IntEnum):
    """The gRPC status codes in use, by their numbers on the wire (grpc's own enum would load grpc)."""

    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class PolicyBridgeError(Exception):
    """Base of all errors that cross the protocol; its text is the message that the peer reads."""

    status: ClassVar[Status] = Status.UNKNOWN
    """The gRPC status of the class, over every transport."""


class InvalidError(PolicyBridgeError):
    """The input is malformed, or does not fit the session's signature.

    Cure: compare the input with the form that the message names; for a signature it has both specs.
    """

    status = Status.INVALID_ARGUMENT


class DeadlineError(PolicyBridgeError):
    """No answer came within the caller's time limit.

    Cure: look at the server's load and the model's time (``policybridge top``), or allow more with ``timeout``.
    """

    status = Status.DEADLINE_EXCEEDED


class NotFoundError(PolicyBridgeError):
    """There is no policy, version, alias or part of that name.

    Cure: choose a name from the message; ``policybridge policies list`` prints a server's policies.
    """

    status = Status.NOT_FOUND


class TooLargeError(PolicyBridgeError):
    """The input has more bytes than the receiver's configuration allows.

    Cure: send less, or raise the limit that the message names in the receiver's configuration.
    """

    status = Status.RESOURCE_EXHAUSTED


class PreconditionError(PolicyBridgeError):
    """The request is valid but not possible now: a step is out of order, or a package is not installed.

    Cure: follow the message first: install the extra, repair the artifact, begin a new session.
    """

    status = Status.FAILED_PRECONDITION


class OutOfScopeError(PolicyBridgeError):
    """The policy declares a scope, and the compilation is outside of it: another level, or another phase.

    Cure: let the compiler decide, as clients with a fallback do, or name a policy for such compilations.
    """

    status = Status.OUT_OF_RANGE


class UnsupportedError(PolicyBridgeError):
    """A part of the protocol that is not supported here.

    Cure: use the alternative in the message: another transport or address, or a server with a ledger.
    """

    status = Status.UNIMPLEMENTED


class PolicyFailedError(PolicyBridgeError):
    """The policy raised an error, or gave a value that is not advice: wrong shape or type, or NaN.

    Cure: read the traceback in the server's log, and repair the policy; until then let an alias name an older
    version.
    """

    status = Status.INTERNAL


class UnavailableError(PolicyBridgeError):
    """The server cannot be reached, has gone away, or is shutting down.

    Cure: make sure that the server runs and listens at that address. Compilers with a fallback go on meanwhile.
    """

    status = Status.UNAVAILABLE


class UnauthenticatedError(PolicyBridgeError):
    """The server needs a token, and the caller sent no token or an unknown one.

    Cure: give a token with ``--token-file`` or POLICYBRIDGE_TOKEN_FILE, and make sure that the server has it.
    """

    status = Status.UNAUTHENTICATED


class PermissionDeniedError(PolicyBridgeError):
    """The caller's token lacks the scope that the call needs.

    Cure: ask the operator for a token with the scope that the message names.
    """

    status = Status.PERMISSION_DENIED


class UnknownError(PolicyBridgeError):
    """A status without a class of its own.

    Cure: look up the message, which is the peer's own, in its documentation or its log.
    """


_CLASSES: dict[int, type[PolicyBridgeError]] = {
    kind.status: kind
    for kind in (
        InvalidError,
        DeadlineError,
        NotFoundError,
        TooLargeError,
        PreconditionError,
        OutOfScopeError,
        UnsupportedError,
        PolicyFailedError,
        UnavailableError,
        UnauthenticatedError,
        PermissionDeniedError,
    )
}


def error_from_status(status: int, message: str) -> PolicyBridgeError:
    """Make the error for the number of a gRPC ``status`` and its message."""
    return _CLASSES.get(status, UnknownError)(message)
