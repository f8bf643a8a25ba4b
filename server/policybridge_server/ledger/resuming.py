"""Whether a session of the ledger may go on, and its record on the loop thread."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from policybridge_core.errors import PermissionDeniedError, PolicyBridgeError, PreconditionError, UnavailableError
from policybridge_server.backends.contract import SessionView
from policybridge_server.ledger.failures import refusal


@dataclass(frozen=True)
class Kept:
    """A session as a ledger holds it.

    Attributes:
        version: its policy, version and digest.
        opener: the client that opened it; see `SessionView.reporter`.
        is_over: whether it ended, or was interrupted.
        decisions: their number.
        last: the step of the last one.
        lost: the number of those that the ledger could not keep.

    """

    version: Sequence[str | int]
    opener: str
    is_over: bool
    decisions: int
    last: int
    lost: int


def check_resumed(session: SessionView, kept: Kept) -> int:
    """Return the number of decisions that are there.

    Raises:
        PolicyBridgeError: the session may not go on; see `Resuming.resume`.

    """
    policy = session.policy
    if kept.opener != session.reporter:
        raise PermissionDeniedError(f"session {session.id} was opened by another client")
    if tuple(kept.version) != (policy.name, policy.version, policy.digest):
        name, version, digest = kept.version
        raise PreconditionError(
            f"{name}@{version} ({digest}) decided in session {session.id}, not {policy.name}@{policy.version} "
            f"({policy.digest})"
        )
    if not kept.is_over:
        raise UnavailableError(f"session {session.id} still runs; send its record when it is over")
    lost = refusal(session.id, kept.lost or kept.last - kept.decisions)
    if lost is not None:
        raise lost
    return kept.decisions


Ready = Callable[[PolicyBridgeError | None, int], None]
"""Called on the loop thread: with the number of decisions that the ledger holds, or with the reason of a refusal."""
