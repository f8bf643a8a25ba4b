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
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14


class PolicyBridgeError(Exception):
    """Base of all errors that cross the protocol; its text is the message that the peer reads."""

    status: ClassVar[Status] = Status.UNKNOWN


class InvalidError(PolicyBridgeError):
    """The input cannot be understood, or does not fit what the session's opening declared."""

    status = Status.INVALID_ARGUMENT


class DeadlineError(PolicyBridgeError):
    """No answer came within the time that the caller allows."""

    status = Status.DEADLINE_EXCEEDED


class NotFoundError(PolicyBridgeError):
    """There is no policy, version, alias or part of that name."""

    status = Status.NOT_FOUND


class TooLargeError(PolicyBridgeError):
    """The input has more bytes than the receiver's configuration allows."""

    status = Status.RESOURCE_EXHAUSTED


class PreconditionError(PolicyBridgeError):
    """The request is valid but not possible now: a step is out of order, or a package is not installed."""

    status = Status.FAILED_PRECONDITION


class UnsupportedError(PolicyBridgeError):
    """A part of the protocol that is not supported here."""

    status = Status.UNIMPLEMENTED


class PolicyFailedError(PolicyBridgeError):
    """The policy raised an error, or gave a value that is no advice: wrong shape or type, or NaN."""

    status = Status.INTERNAL


class UnavailableError(PolicyBridgeError):
    """The server cannot be reached, has gone away, or is shutting down."""

    status = Status.UNAVAILABLE


class UnknownError(PolicyBridgeError):
    """A status without a class of its own."""


_CLASSES: dict[int, type[PolicyBridgeError]] = {
    kind.status: kind
    for kind in (
        InvalidError,
        DeadlineError,
        NotFoundError,
        TooLargeError,
        PreconditionError,
        UnsupportedError,
        PolicyFailedError,
        UnavailableError,
    )
}


def error_from_status(status: int, message: str) -> PolicyBridgeError:
    """Make the error for the number of a gRPC ``status`` and its message."""
    return _CLASSES.get(status, UnknownError)(message)
