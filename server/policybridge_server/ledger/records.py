"""The records that the recorder hands to a store, in the order of the events."""

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from policybridge_serdes import Outcome, Signature, Values
from policybridge_serdes.limits import Buffer
from policybridge_serdes.values import Row
from policybridge_server.backends.contract import SessionView
from policybridge_server.repository.rollout import RolloutStep

DecisionRecord = tuple[Row, Values, float | None, int]
"""A decision: observation, advice, log-probability, nanoseconds."""


class BulkPart(msgspec.Struct, frozen=True):
    """Decisions that a client reported in one message, as it packed them; the layouts are fixed.

    Attributes:
        observations: one record after another.
        advices: likewise.
        count: of the decisions.
        nanoseconds: of each, on average.
        chances: the log-probabilities, packed floats; empty if the session did not explore.

    """

    observations: Buffer
    advices: Buffer
    count: int
    nanoseconds: int
    chances: Buffer = b""

    @property
    def size(self) -> int:
        """Bytes that it holds in memory, about."""
        return len(self.observations) + len(self.advices) + len(self.chances) + _PART


class Bulk:
    """Decisions that a client reported in messages that follow each other.

    Args:
        parts: one or more, all with chances or all without.

    Attributes:
        parts: likewise.

    """

    def __init__(self, parts: Sequence[BulkPart]) -> None:
        self.parts = parts
        self._count = sum(part.count for part in parts)

    def __len__(self) -> int:
        return self._count


_RECORD: Final = 1000
"""Bytes that Python's objects for a record take, about."""

_PART: Final = 700
"""Bytes that Python's objects for a reported message take, about."""

_TEXT: Final = 100
"""Bytes that Python's objects for a short text and its place take, about."""


def _size(texts: Sequence[str]) -> int:
    """Give the bytes that texts take in memory, about."""
    return len(texts) * _TEXT + sum(map(len, texts))


class Begun(msgspec.Struct, frozen=True):
    """A session began, at ``when`` (seconds since 1970)."""

    session: SessionView
    when: float

    @property
    def size(self) -> int:
        """Bytes that it holds in memory, about."""
        labels, options = self.session.labels, self.session.options
        return _RECORD + _size([*labels, *labels.values(), *options, *options.values()])


class Labelled(msgspec.Struct, frozen=True):
    """A session has other labels now, all of which are here."""

    session_id: str
    labels: Mapping[str, str]

    @property
    def size(self) -> int:
        """Bytes that it holds in memory, about."""
        return _RECORD + _size([*self.labels, *self.labels.values()])


class Segment(msgspec.Struct, frozen=True):
    """Decisions of one session that follow each other, under one signature and in one context.

    Attributes:
        first: the step of the first one; steps count from 1.
        size: bytes that it holds in memory, about.

    """

    session_id: str
    first: int
    signature: Signature
    context: str
    decisions: Sequence[DecisionRecord] | Bulk
    size: int


class Lost(msgspec.Struct, frozen=True):
    """Decisions of a session that were dropped because the store could not keep up."""

    session_id: str
    count: int
    size: int = _RECORD


class Ended(msgspec.Struct, frozen=True):
    """A session ended, with ``failures`` failed evaluations; ``interrupted``: its record has no end."""

    session_id: str
    when: float
    failures: int = 0
    interrupted: bool = False
    size: int = _RECORD


class Reported(msgspec.Struct, frozen=True):
    """An outcome was reported; ``None``: only the acknowledgement of the records before this one is wanted."""

    session_id: str
    outcome: Outcome | None
    when: float
    reporter: str = ""

    @property
    def size(self) -> int:
        """Bytes that it holds in memory, about."""
        outcome = self.outcome
        if outcome is None:
            return _RECORD
        names = [outcome.status, *outcome.values, *outcome.contexts]
        names += [name for values in outcome.contexts.values() for name in values]
        return _RECORD + _size(names)


class Resumed(msgspec.Struct):
    """The client of a session sends its record again.

    Attributes:
        session: as it began.
        when: seconds since 1970.
        held: decisions that the ledger holds, set by the writer.

    """

    session: SessionView
    when: float
    held: int = 0
    size: int = _RECORD


class Step(msgspec.Struct, frozen=True):
    """Something happened to a roll-out."""

    step: RolloutStep
    size: int = _RECORD


Record = Begun | Labelled | Segment | Lost | Ended | Reported | Resumed | Step
