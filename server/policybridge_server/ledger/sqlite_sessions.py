"""The sessions of the SQLite ledger: writes the changes of a transaction."""

from collections.abc import Mapping
from functools import partial
from typing import Final

import msgspec

from policybridge_server.ledger.database import Database
from policybridge_server.ledger.large_segments import add_large
from policybridge_server.ledger.lifetime import Lifetime
from policybridge_server.ledger.records import Segment
from policybridge_server.ledger.rows import REPORTERS, SegmentRow, SessionRow, line, packed_observations
from policybridge_server.ledger.totals import SessionTotals

Large = Mapping[tuple[str, int], Segment]
"""Segments whose observations are packed in pieces, by their session's id and their first step."""

_ADD: Final = """
INSERT INTO sessions (id, policy, version, digest, labels, options, exploration, opened, decisions, lost, closed,
interrupted, reported, status) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

_ADD_CHOSEN: Final = "INSERT INTO chosen (session, alias, reporters, failures) VALUES (?, ?, ?, ?)"

_CHANGE: Final = """
UPDATE sessions SET decisions = decisions + ?, lost = lost + ?, reported = coalesce(?, reported),
status = coalesce(nullif(?, ''), status) WHERE number = ?
"""

_LABEL: Final = "UPDATE sessions SET labels = ? WHERE number = ?"

_END: Final = "UPDATE sessions SET closed = ?, interrupted = ? WHERE number = ?"

_CHANGE_CHOSEN: Final = f"""
UPDATE chosen SET reporters = substr(reporters || ?, 1, {REPORTERS}), failures = failures + ? WHERE session = ?
"""  # noqa: S608 - our own number

_ADD_SEGMENT: Final = """
INSERT INTO segments (session, first, count, signature, context, observations, advices, chances, latencies)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
"""

_ADD_OUTCOME: Final = "INSERT OR REPLACE INTO outcomes (session, name, value) VALUES (?, ?, ?)"

_ADD_CONTEXTS: Final = "INSERT INTO context_outcomes (session, outcomes) VALUES (?, ?)"


class SessionTable:
    """Writes sessions, in transactions; after a rollback call `forget`.

    Args:
        database: the ledger's.
        lifetime: of the ledger.

    """

    def __init__(self, database: Database, lifetime: Lifetime) -> None:
        self._database = database
        self._run = database.run
        self._lifetime = lifetime
        self._signatures: dict[str, int] = {}

    def forget(self) -> None:
        """Forget which numbers the rows have."""
        self._signatures.clear()

    def write(self, name: str, change: SessionTotals, large: Large) -> int | None:
        """Write the change of a session.

        Args:
            name: the session's id.
            change: its rows in this transaction; those of large segments have no observations.
            large: has these segments.

        Returns:
            Number of its decisions that were lost so far; ``None``: there is no such session.

        """
        if change.begun is not None:
            number, lost = self._begin(change.begun, change), 0
        else:
            found = self._run("SELECT number, lost FROM sessions WHERE id = ?", name).fetchone()
            if found is None:
                return None
            number, lost = found
            self._change(number, change)
        for row in change.segments:
            self._add_segment(number, row, large.get((name, row.first)))
        if change.outcomes:
            # A name that was reported before gets its new value.
            outcomes = [(number, *outcome) for outcome in change.outcomes.items()]
            self._database.run_for_each(_ADD_OUTCOME, outcomes)
        for contexts in change.contexts:
            self._run(_ADD_CONTEXTS, number, contexts)
        return int(lost) + change.lost

    def _begin(self, begun: SessionRow, change: SessionTotals) -> int:
        if change.labels is not None:
            begun = msgspec.structs.replace(begun, labels=change.labels)
        *columns, file, alias, reporter = msgspec.structs.astuple(begun)
        decisions, lost, closed, interrupted, reported, status, reporters, failures = change.columns
        added = self._run(_ADD, *columns, decisions, lost, closed, interrupted, reported, status)
        number = int(added.lastrowid or 0)
        self._run("INSERT INTO births (session, lived) VALUES (?, ?)", number, self._lifetime.lived())
        if file:
            self._run("INSERT INTO files (session, name) VALUES (?, ?)", number, file)
        if alias:
            self._run(_ADD_CHOSEN, number, alias, (line(reporter) + reporters)[:REPORTERS], failures)
        if reporter:
            self._run("INSERT INTO openers (session, reporter) VALUES (?, ?)", number, reporter)
        return number

    def _change(self, number: int, change: SessionTotals) -> None:
        decisions, lost, closed, interrupted, reported, status, reporters, failures = change.columns
        if decisions or lost or reported is not None:
            self._run(_CHANGE, decisions, lost, reported, status, number)
        if change.labels is not None:
            self._run(_LABEL, change.labels, number)
        if closed is not None:
            # By a statement of its own, because an index has the sessions that are not closed.
            self._run(_END, closed, interrupted, number)
        if reporters or failures:
            self._run(_CHANGE_CHOSEN, reporters, failures, number)

    def _add_segment(self, number: int, row: SegmentRow, large: Segment | None) -> None:
        _, first, count, text, *columns = msgspec.structs.astuple(row)
        signature = self._signature(text)
        if large is None:
            self._run(_ADD_SEGMENT, number, first, count, signature, *columns)
        else:
            add_large(self._database, number, row, signature, partial(packed_observations, large))

    def _signature(self, text: str) -> int:
        number = self._signatures.get(text)
        if number is None:
            self._run("INSERT OR IGNORE INTO signatures (text) VALUES (?)", text)
            (number,) = self._run("SELECT number FROM signatures WHERE text = ?", text).fetchone()
            self._signatures[text] = number
        return number
