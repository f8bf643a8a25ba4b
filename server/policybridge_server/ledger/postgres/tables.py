"""Rows into the tables: many in one transaction, by COPY."""

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
import psycopg

from policybridge_core.errors import PolicyBridgeError, UnknownError
from policybridge_server.backends.contract import SessionView
from policybridge_server.ledger.failures import refusal
from policybridge_server.ledger.postgres.connection import Connected
from policybridge_server.ledger.postgres.partitions import SHIFT
from policybridge_server.ledger.postgres.text import escaped
from policybridge_server.ledger.resuming import Kept, check_resumed
from policybridge_server.ledger.rows import REPORTERS, InterruptedRow, LostRow, Row, SegmentRow, StepRow, line
from policybridge_server.ledger.totals import Named, SessionTotals, TwiceError, by_session

_LOG = logging.getLogger(__name__)

_KNOWN: Final = 10_000
"""Limit of remembered sessions' numbers."""

_OWN_FAULTS: Final = ("22", "23", "54")
"""Classes of the errors that are about one row: its data, a constraint, or a limit of the database."""

_NUMBERS: Final = f"""
SELECT (SELECT max(number)::bigint FROM partitions) << {SHIFT} | nextval('session_numbers') AS number
FROM generate_series(1, %s)
"""  # noqa: S608 - our own number

_UPDATE: Final = f"""
UPDATE sessions SET decisions = sessions.decisions + new.decisions, lost = sessions.lost + new.lost,
closed = coalesce(new.closed, sessions.closed),
interrupted = CASE WHEN new.closed IS NULL THEN sessions.interrupted ELSE new.interrupted END,
reported = coalesce(new.reported, sessions.reported), status = coalesce(nullif(new.status, ''), sessions.status),
reporters = left(sessions.reporters || new.reporters, {REPORTERS}), failures = sessions.failures + new.failures
FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::float8[], %s::smallint[], %s::float8[], %s::text[],
%s::text[], %s::bigint[])
AS new (number, decisions, lost, closed, interrupted, reported, status, reporters, failures)
WHERE sessions.number = new.number AND sessions.number BETWEEN %s AND %s
"""  # noqa: S608 - our own number
# The first and the last number let the planner skip most of hundreds of partitions.

_LABEL: Final = "UPDATE sessions SET labels = %s WHERE number = %s"

_FORGET: Final = """
DELETE FROM outcomes USING unnest(%s::bigint[], %s::text[]) AS new (session, name)
WHERE outcomes.session = new.session AND outcomes.name = new.name AND outcomes.session BETWEEN %s AND %s
"""

_LOST: Final = "SELECT number, lost FROM sessions WHERE number = ANY(%s) AND number BETWEEN %s AND %s"

_INTERRUPT: Final = "UPDATE sessions SET closed = %s, interrupted = 1 WHERE writer = %s AND closed IS NULL"

_SESSIONS: Final = {
    "number": "int8",
    "id": "text",
    "writer": "text",
    "policy": "text",
    "version": "int8",
    "digest": "text",
    "labels": "text",
    "options": "text",
    "exploration": "text",
    "opened": "float8",
    "closed": "float8",
    "interrupted": "int2",
    "decisions": "int8",
    "lost": "int8",
    "status": "text",
    "reported": "float8",
    "file": "text",
    "alias": "text",
    "reporters": "text",
    "failures": "int8",
    "opener": "text",
}
_SEGMENTS: Final = {
    "session": "int8",
    "first": "int8",
    "count": "int4",
    "signature": "int4",
    "context": "text",
    "observations": "bytea",
    "advices": "bytea",
    "chances": "bytea",
    "latencies": "bytea",
}
_OUTCOMES: Final = {"session": "int8", "name": "text", "value": "float8"}
_CONTEXTS: Final = {"session": "int8", "outcomes": "bytea"}


_KEPT: Final = """
SELECT number, policy, version, digest, opener, closed IS NOT NULL AS is_over, decisions, lost,
(SELECT coalesce(max(first + count - 1), 0) FROM segments WHERE segments.session = number) AS last
FROM sessions WHERE id = %s FOR UPDATE
"""

_REOPEN: Final = "UPDATE sessions SET closed = NULL, interrupted = 0, writer = %s WHERE number = %s"


class Tables:
    """Writes rows. Used in transactions; after a rollback call `forget`.

    Args:
        connection: to the database.

    """

    def __init__(self, connection: Connected) -> None:
        self._connection = connection
        self._numbers = OrderedDict[str, int]()
        self._signatures: dict[str, int] = {}

    def forget(self) -> None:
        """Forget which numbers the rows have."""
        self._numbers.clear()
        self._signatures.clear()

    def add(self, writer: str, rows: Sequence[Named]) -> dict[Any, PolicyBridgeError]:
        """Add rows of a server; a row that the tables refuse costs no other one.

        Returns:
            Name → why a row that asks for it cannot be acknowledged.

        Raises:
            psycopg.Error: nothing can be added now.

        """
        try:
            with self._connection.transaction():
                return self._add(writer, rows)
        except psycopg.Error as error:
            if not _is_own_fault(error):
                raise
        # One of them is refused, or its partition has been dropped.
        self.forget()
        refused: dict[Any, PolicyBridgeError] = {}
        for name, row in rows:
            refused |= self._add_or_count_lost(writer, name, row)
        return refused

    def _add_or_count_lost(self, writer: str, name: Any, row: Row) -> dict[Any, PolicyBridgeError]:
        try:
            with self._connection.transaction():
                return self._add(writer, [(name, row)])
        except psycopg.Error as error:
            if not _is_own_fault(error):
                raise
            _LOG.error("a record cannot be written to the ledger: %s", type(error).__name__)
            self.forget()
            if isinstance(row, SegmentRow):
                self._add(writer, [(name, LostRow(row.session, row.count))])
            return {name: UnknownError(f"the ledger failed: {type(error).__name__}")}

    def resume(self, writer: str, session: SessionView) -> int | None:
        """Let a session go on, by this server; return the number of its decisions, or ``None``: it is not there.

        Raises:
            PolicyBridgeError: it may not go on; see `Resuming.resume`.

        """
        row = self._connection.execute(_KEPT, (session.id,)).fetchone()
        if row is None:
            return None
        version = row["policy"], row["version"], row["digest"]
        kept = Kept(version, row["opener"], row["is_over"], row["decisions"], row["last"], row["lost"])
        held = check_resumed(session, kept)
        self._connection.execute(_REOPEN, (writer, row["number"]))
        return held

    def _add(self, writer: str, rows: Sequence[Named]) -> dict[Any, PolicyBridgeError]:
        try:
            changes = by_session(rows)
        except TwiceError as error:
            raise psycopg.errors.UniqueViolation(str(error)) from error
        self._find(changes)
        refused = self._begin(writer, changes)
        there = {self._numbers[key]: change for key, change in changes.items() if key in self._numbers}
        self._add_segments(there)
        self._update({number: change for number, change in there.items() if change.begun is None})
        self._add_outcomes(there)
        for _, row in rows:
            self._add_other(row)
        refused |= self._refusals(changes)
        while len(self._numbers) > _KNOWN:
            self._numbers.popitem(last=False)
        return refused

    def _find(self, changes: Mapping[str, SessionTotals]) -> None:
        """Find the numbers of earlier sessions."""
        # Ids are unique, and each session begins once, so a session that begins here cannot exist.
        unknown = [key for key, change in changes.items() if change.begun is None and key not in self._numbers]
        if unknown:
            rows = self._connection.execute("SELECT id, number FROM sessions WHERE id = ANY(%s)", (unknown,))
            self._numbers |= {row["id"]: row["number"] for row in rows}

    def _begin(self, writer: str, changes: Mapping[str, SessionTotals]) -> dict[Any, PolicyBridgeError]:
        new = {key: change for key, change in changes.items() if change.begun is not None}
        for key in [key for key in new if key in self._numbers]:
            raise psycopg.errors.UniqueViolation(f"there is a session {key!r}")
        if not new:
            return {}
        given = self._connection.execute(_NUMBERS, (len(new),)).fetchall()
        numbers = sorted(row["number"] for row in given)
        self._numbers |= dict(zip(new, numbers, strict=True))
        self._copy("sessions", _SESSIONS, (_session(self._numbers[key], writer, each) for key, each in new.items()))
        return {}

    def _add_segments(self, there: Mapping[int, SessionTotals]) -> None:
        rows = [
            (number, row.first, row.count, self._signature(row.signature), *msgspec.structs.astuple(row)[4:])
            for number, change in there.items()
            for row in change.segments
        ]
        self._copy("segments", _SEGMENTS, rows)

    def _signature(self, text: str) -> int:
        number = self._signatures.get(text)
        if number is None:
            digest = hashlib.sha256(text.encode()).hexdigest()
            self._connection.execute(
                "INSERT INTO signatures (digest, text) VALUES (%s, %s) ON CONFLICT DO NOTHING", (digest, text)
            )
            (row,) = self._connection.execute("SELECT number FROM signatures WHERE digest = %s", (digest,)).fetchall()
            number = self._signatures[text] = int(row["number"])
        return number

    def _update(self, there: Mapping[int, SessionTotals]) -> None:
        # In one order everywhere: servers that change the same sessions must not wait for each other in a circle.
        changed = sorted((number, change) for number, change in there.items() if change.changes_session)
        if changed:
            columns = zip(*((number, *change.columns) for number, change in changed), strict=True)
            self._connection.execute(_UPDATE, [*map(list, columns), changed[0][0], changed[-1][0]])
        for number, change in sorted(there.items(), key=lambda each: each[0]):
            if change.labels is not None:
                self._connection.execute(_LABEL, (_json(change.labels), number))

    def _add_outcomes(self, there: Mapping[int, SessionTotals]) -> None:
        rows = [(number, *pair) for number, change in there.items() for pair in change.outcomes.items()]
        old = [(number, name) for number, name, _ in rows if there[number].begun is None]
        if old:
            # The sessions' own rows are locked: no other server adds outcomes of them now.
            numbers, names = map(list, zip(*old, strict=True))
            self._connection.execute(_FORGET, [numbers, names, min(numbers), max(numbers)])
        self._copy("outcomes", _OUTCOMES, rows)
        contexts = [(number, each) for number, change in there.items() for each in change.contexts]
        self._copy("context_outcomes", _CONTEXTS, contexts)

    def _add_other(self, row: Row) -> None:
        match row:
            case StepRow():
                self._connection.execute(
                    "INSERT INTO rollout_steps (policy, what, rollout, at) VALUES (%s, %s, %s, %s)",
                    msgspec.structs.astuple(row),
                )
            case InterruptedRow():
                self._connection.execute(_INTERRUPT, (row.when, row.writer))

    def _refusals(self, changes: Mapping[str, SessionTotals]) -> dict[Any, PolicyBridgeError]:
        asked = {key: change for key, change in changes.items() if change.asked}
        numbers = [self._numbers[key] for key in asked if key in self._numbers]
        lost: dict[int, int] = {}
        if numbers:
            rows = self._connection.execute(_LOST, (numbers, min(numbers), max(numbers)))
            lost = {row["number"]: row["lost"] for row in rows}
        refused: dict[Any, PolicyBridgeError] = {}
        for key, change in asked.items():
            error = refusal(key, lost.get(self._numbers.get(key, -1)))
            if error is not None:
                refused |= dict.fromkeys(change.asked, error)
        return refused

    def _copy(self, table: str, columns: Mapping[str, str], rows: Iterable[Sequence[Any]]) -> None:
        waiting = iter(rows)
        first = next(waiting, None)
        if first is None:
            return
        statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN (FORMAT BINARY)"
        with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            copy.set_types(list(columns.values()))
            copy.write_row(first)
            for row in waiting:
                copy.write_row(row)


def _is_own_fault(error: psycopg.Error) -> bool:
    state = error.sqlstate
    return state.startswith(_OWN_FAULTS) if state else isinstance(error, psycopg.DataError)


def _session(number: int, writer: str, change: SessionTotals) -> Sequence[Any]:
    begun = change.begun
    assert begun is not None  # noqa: S101 - for the type checker
    return (
        number,
        begun.session,
        writer,
        begun.policy,
        begun.version,
        begun.digest,
        _json(begun.labels if change.labels is None else change.labels),
        _json(begun.options),
        begun.exploration,
        begun.opened,
        change.closed,
        change.interrupted,
        change.decisions,
        change.lost,
        change.status,
        change.reported,
        begun.file,
        begun.alias,
        line(begun.reporter) + change.reporters,
        change.failures,
        begun.reporter,
    )


def _json(texts: str) -> str:
    """Give a JSON object of strings as PostgreSQL can read it."""
    if "\\u0000" not in texts and "\\u0001" not in texts:
        return texts
    pairs = msgspec.json.decode(texts, type=dict[str, str])
    return msgspec.json.encode({escaped(name): escaped(value) for name, value in pairs.items()}).decode()
