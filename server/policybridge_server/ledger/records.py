"""The records that the recorder hands to a store, in the order of the events."""

from collections.abc import Sequence
from dataclasses import dataclass

from policybridge_serdes import Outcome, Signature, Values
from policybridge_serdes.values import Row
from policybridge_server.backends.contract import SessionView

DecisionRecord = tuple[Row, Values, float | None, int]
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
        size: bytes that it holds in memory, about.

    """

    session_id: str
    first: int
    signature: Signature
    context: str
    decisions: Sequence[DecisionRecord]
    size: int


@dataclass(frozen=True)
class Lost:
    """Decisions of a session that were dropped because the store could not keep up."""

    session_id: str
    count: int


@dataclass(frozen=True)
class Ended:
    """A session ended."""

    session_id: str
    when: float


@dataclass(frozen=True)
class Reported:
    """An outcome was reported; ``None``: only the acknowledgement of the records before this one is wanted."""

    session_id: str
    outcome: Outcome | None
    when: float


Record = Begun | Segment | Lost | Ended | Reported
