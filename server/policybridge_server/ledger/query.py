"""Queries of a ledger's sessions, and the properties of each."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from policybridge_serdes import Exploration, Outcome, PolicyVersion

_LABEL: Final = "EXISTS (SELECT 1 FROM json_each(sessions.labels) AS label WHERE label.key = ? AND label.value = ?)"

_STATUS: Final = (
    "CASE WHEN reported IS NOT NULL THEN coalesce(nullif(status, ''), 'reported') WHEN interrupted > 0 "
    "THEN 'interrupted' WHEN closed IS NULL THEN 'open' ELSE 'closed' END"
)
"""The status of a session, the same as `SessionRecord.status`."""


@dataclass(frozen=True)
class Query:
    """Selects the sessions that meet all conditions; without a condition, all sessions.

    Attributes:
        policy: its name.
        versions: the first and the last version, both included.
        since: opened then or later, seconds since 1970.
        until: opened before then.
        labels: all of these, with these values.
        status: of the outcome; of sessions without an outcome, see `SessionRecord.status`.
        session: the session's id, or how it begins.
        kind: of their decisions only those with this name of the advice, see `LedgerReader.batches`.

    """

    policy: str | None = None
    versions: tuple[int, int] | None = None
    since: float | None = None
    until: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    status: str | None = None
    session: str | None = None
    kind: str | None = None

    def to_sql(self, label: str = _LABEL) -> tuple[str, list[Any]]:
        """Give the SQL condition on the table ``sessions``, and the values of its placeholders.

        Args:
            label: the condition that a label, the first placeholder, has the value that is the second one.

        """
        each: dict[str, object] = {
            "policy = ?": self.policy,
            "opened >= ?": self.since,
            "opened < ?": self.until,
            f"{_STATUS} = ?": self.status,
        }
        conditions = [(condition, [value]) for condition, value in each.items() if value is not None]
        if self.versions is not None:
            conditions.append(("version BETWEEN ? AND ?", list(self.versions)))
        if self.session is not None:
            # An index finds these; ids are ordered by their bytes.
            conditions.append(("id >= ? AND id < ?", [self.session, self.session + chr(sys.maxunicode)]))
        conditions += [(label, [name, value]) for name, value in self.labels.items()]
        text = " AND ".join(condition for condition, _ in conditions) or "TRUE"
        return text, [value for _, values in conditions for value in values]


@dataclass(frozen=True)
class SessionRecord:
    """A session, without its decisions. Times are seconds since 1970.

    Attributes:
        number: grows with time.
        closed: ``None`` while it is open.
        interrupted: whether its server was killed before it ended.
        decisions: number of decisions in the ledger.
        lost: number of decisions dropped because the ledger could not keep up.
        outcome: ``None`` if none was reported.

    """

    number: int
    id: str
    policy: PolicyVersion
    labels: Mapping[str, str]
    options: Mapping[str, str]
    exploration: Exploration | None
    opened: float
    closed: float | None
    interrupted: bool
    decisions: int
    lost: int
    outcome: Outcome | None

    @property
    def state(self) -> str:
        """The session itself in a word: ``open``, ``closed`` or ``interrupted``."""
        return "interrupted" if self.interrupted else "open" if self.closed is None else "closed"

    @property
    def status(self) -> str:
        """The status of the outcome, ``reported`` if it has no word; without an outcome the state."""
        return (self.outcome.status or "reported") if self.outcome else self.state

    def to_json(self) -> dict[str, object]:
        """Return the fields that ``policybridge sessions`` writes."""
        outcome = self.outcome and {"values": dict(self.outcome.values), "status": self.outcome.status}
        exploration = self.exploration and vars(self.exploration)
        return {**vars(self), "policy": vars(self.policy), "outcome": outcome, "exploration": exploration}
