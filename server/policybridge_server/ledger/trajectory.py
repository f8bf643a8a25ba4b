"""Decisions that were read from the ledger: arrays with one entry per decision."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from policybridge_serdes import Layout, Signature, Values
from policybridge_server.ledger.query import SessionRecord


@dataclass(frozen=True, eq=False)
class DecisionBatch:
    """Decisions of one signature, those of a session together and in order; all arrays have the same length.

    Attributes:
        signature: of observations and advice.
        sessions: the decisions' sessions.
        session: of each decision, the index in ``sessions``.
        steps: counted from 1 in each session.
        contexts: the function or module of each.
        observations: records of ``signature.features``.
        advices: records of ``signature.advice_layout``.
        log_probabilities: NaN if the session did not explore.
        nanoseconds: from the submission of each to its advice, in the server.

    """

    signature: Signature
    sessions: Sequence[SessionRecord]
    session: npt.NDArray[np.int64]
    steps: npt.NDArray[np.int64]
    contexts: npt.NDArray[np.object_]
    observations: Values
    advices: Values
    log_probabilities: npt.NDArray[np.float64]
    nanoseconds: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.steps)

    def outcome(self, name: str) -> npt.NDArray[np.float64]:
        """Give for each decision the value ``name`` of its session's outcome, NaN if there is none; shape [n]."""
        numbers = [session.outcome.values.get(name, np.nan) if session.outcome else np.nan for session in self.sessions]
        values: npt.NDArray[np.float64] = np.array(numbers, np.float64)[self.session]
        return values

    def of_session(self, index: int) -> "DecisionBatch":
        """Give the decisions of the session ``sessions[index]``."""
        rows = np.flatnonzero(self.session == index)
        start, end = (int(rows[0]), int(rows[-1]) + 1) if len(rows) else (0, 0)
        columns = {name: getattr(self, name)[start:end] for name in _COLUMNS}
        columns["session"] = np.zeros(end - start, np.int64)
        return replace(self, **columns, sessions=[self.sessions[index]])

    def split(self, size: int) -> Iterator["DecisionBatch"]:
        """Split it into batches of at most ``size`` decisions."""
        for start in range(0, len(self), size):
            yield replace(self, **{name: getattr(self, name)[start : start + size] for name in _COLUMNS})


_PLAIN_COLUMNS: Final = ("steps", "contexts", "log_probabilities", "nanoseconds")
_COLUMNS: Final = ("session", "observations", "advices", *_PLAIN_COLUMNS)


@dataclass(frozen=True, eq=False)
class Trajectory:
    """A whole session: one batch, or several in order if its signature changed.

    Attributes:
        session: the session, with its outcome.
        batches: its decisions.

    """

    session: SessionRecord
    batches: Sequence[DecisionBatch]


def joined(batches: Sequence[DecisionBatch]) -> DecisionBatch:
    """Join batches of the same signature."""
    signature = batches[0].signature
    sessions = list({session.number: session for batch in batches for session in batch.sessions}.values())
    index = {session.number: position for position, session in enumerate(sessions)}
    numbers = [np.array([index[session.number] for session in batch.sessions])[batch.session] for batch in batches]
    columns = {name: np.concatenate([getattr(batch, name) for batch in batches]) for name in _PLAIN_COLUMNS}
    return DecisionBatch(
        signature,
        sessions,
        np.concatenate(numbers),
        observations=_joined_values(signature.features, [batch.observations for batch in batches]),
        advices=_joined_values(signature.advice_layout, [batch.advices for batch in batches]),
        **columns,
    )


def _joined_values(layout: Layout, parts: Sequence[Values]) -> Values:
    if len(parts) == 1:
        return parts[0]
    if not layout.fixed:
        return np.concatenate(parts)
    # Joining bytes is a thousand times cheaper than np.concatenate on records of many fields.
    values: Values = np.ndarray(sum(map(len, parts)), layout.dtype, b"".join(part.tobytes() for part in parts))
    return values
