"""The sum of a transaction's rows for each session, so that its own row is written once."""

from collections.abc import Sequence
from typing import Any

import msgspec

from policybridge_server.ledger.rows import (
    EndRow,
    InterruptedRow,
    LabelsRow,
    LostRow,
    OutcomeRow,
    Row,
    SegmentRow,
    SessionRow,
    StepRow,
    line,
)

Named = tuple[Any, Row]
"""A row, and its key for a refusal."""


class SessionTotals(msgspec.Struct):
    """The sum of rows for one session.

    Attributes:
        begun: ``None``: it was begun before.
        labels: of it now, JSON; ``None``: those that it began with.
        asked: the names of the rows that want an acknowledgement.

    """

    begun: SessionRow | None = None
    labels: str | None = None
    decisions: int = 0
    lost: int = 0
    closed: float | None = None
    interrupted: int = 0
    reported: float | None = None
    status: str = ""
    reporters: str = ""
    failures: int = 0
    outcomes: dict[str, float] = {}
    contexts: list[bytes] = []
    segments: list[SegmentRow] = []
    asked: list[Any] = []

    def add(self, name: Any, row: Row) -> None:
        """Take a row of the session."""
        match row:
            case SessionRow():
                self.begun = row
            case LabelsRow():
                self.labels = row.labels
            case SegmentRow():
                self.segments.append(row)
                self.decisions += row.count
            case LostRow():
                self.lost += row.count
            case EndRow():
                self.closed, self.interrupted = row.when, int(row.interrupted)
                self.failures += row.failures
                self.asked.append(name)
            case OutcomeRow():
                self.asked.append(name)
                self._add_outcome(row)

    def _add_outcome(self, row: OutcomeRow) -> None:
        if row.values is not None:
            self.reported, self.status = row.when, row.status or self.status
            self.outcomes |= row.values
            self.reporters += line(row.reporter)
            self.contexts += [] if row.contexts is None else [row.contexts]

    @property
    def columns(self) -> tuple[int, int, float | None, int, float | None, str, str, int]:
        """Give the changes of the session's own row."""
        end, reported = (self.closed, self.interrupted), (self.reported, self.status, self.reporters)
        return self.decisions, self.lost, *end, *reported, self.failures

    @property
    def changes_session(self) -> bool:
        """Whether it changes the session's own row."""
        return bool(self.decisions or self.lost or self.closed is not None or self.reported is not None)


class TwiceError(Exception):
    """Two rows begin the same session."""


def by_session(rows: Sequence[Named]) -> dict[str, SessionTotals]:
    """Return the sums of rows by the sessions' ids.

    Raises:
        TwiceError: a session begins twice.

    """
    changes: dict[str, SessionTotals] = {}
    for name, row in rows:
        match row:
            case StepRow() | InterruptedRow():
                pass
            case _:
                change = changes.get(row.session) or changes.setdefault(row.session, SessionTotals())
                if isinstance(row, SessionRow) and change.begun is not None:
                    raise TwiceError(f"there is a session {row.session!r}")
                change.add(name, row)
    return changes
