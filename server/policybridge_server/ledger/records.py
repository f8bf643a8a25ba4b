"""What the recorder hands to a store, in the order in which it happened."""

from collections.abc import Sequence
from dataclasses import dataclass

from policybridge_serdes import Outcome, Signature, Values
from policybridge_serdes.values import Row
from policybridge_server.backends.contract import SessionView

Kept = tuple[Row, Values, float | None, int]
"""A decision: observation, advice, log-probability, nanoseconds."""


@dataclass(frozen=True)
class Begun:
    """A session began, at ``when`` (seconds since 1970)."""

    session: SessionView
    when: float


@dataclass(frozen=True)
class Segment:
    """Decisions of one session that follow each other, under one signature and in one context.

    Attributes:
        first: the step of the first one; steps count from 1.
        size: about how many bytes it holds in memory.

    """

    session_id: str
    first: int
    signature: Signature
    context: str
    decisions: Sequence[Kept]
    size: int


@dataclass(frozen=True)
class Lost:
    """Decisions of a session that found no room."""

    session_id: str
    count: int


@dataclass(frozen=True)
class Ended:
    """A session ended."""

    session_id: str
    when: float


@dataclass(frozen=True)
class Reported:
    """An outcome came; ``None`` asks only that what came before is kept."""

    session_id: str
    outcome: Outcome | None
    when: float


Record = Begun | Segment | Lost | Ended | Reported
