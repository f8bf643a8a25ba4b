"""What can go wrong, as classes that carry their gRPC status.

Servers raise them and map them to a status once, at the edge; clients get a status and raise the same classes.
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
    """Base of all errors that cross the protocol; ``str()`` of one is the message that the peer reads."""

    status: ClassVar[Status] = Status.UNKNOWN


class InvalidError(PolicyBridgeError):
    """What was sent cannot be understood, or does not fit what was agreed at open."""

    status = Status.INVALID_ARGUMENT


class DeadlineError(PolicyBridgeError):
    """No answer came within the time that the caller allows."""

    status = Status.DEADLINE_EXCEEDED


class NotFoundError(PolicyBridgeError):
    """No such policy, version, alias, SerDes or backend."""

    status = Status.NOT_FOUND


class TooLargeError(PolicyBridgeError):
    """More bytes than the receiver is configured to take."""

    status = Status.RESOURCE_EXHAUSTED


class PreconditionError(PolicyBridgeError):
    """Right in itself, but not now: a step out of order, an extra that is not installed."""

    status = Status.FAILED_PRECONDITION


class UnsupportedError(PolicyBridgeError):
    """A part of the protocol that this side does not speak."""

    status = Status.UNIMPLEMENTED


class PolicyFailedError(PolicyBridgeError):
    """The policy raised, or gave something that is no advice (wrong shape or type, NaN)."""

    status = Status.INTERNAL


class UnavailableError(PolicyBridgeError):
    """The server cannot be reached, went away, or is draining."""

    status = Status.UNAVAILABLE


class UnknownError(PolicyBridgeError):
    """A status that has no class of its own here."""


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
    """Give the error that the peer meant by the number of its gRPC ``status``."""
    return _CLASSES.get(status, UnknownError)(message)
