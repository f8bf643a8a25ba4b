"""Ledger store `sqlite`: one file in WAL mode, written by one server and read by any number of others."""

import logging
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from policybridge_core.errors import PolicyBridgeError, UnknownError
from policybridge_server.ledger.contract import Bounds
from policybridge_server.ledger.database import Database
from policybridge_server.ledger.failures import mapped, refusal
from policybridge_server.ledger.large_segments import LARGE_SEGMENT, add_large
from policybridge_server.ledger.lifetime import Lifetime
from policybridge_server.ledger.records import Record, Resumed, Segment
from policybridge_server.ledger.resuming import Kept, check_resumed
from policybridge_server.ledger.retention import Retention
from policybridge_server.ledger.rows import (
    REPORTERS,
    EndRow,
    LostRow,
    OutcomeRow,
    Packer,
    Row,
    SegmentRow,
    SessionRow,
    StepRow,
    line,
    packed_observations,
)
from policybridge_server.ledger.sqlite_reader import SqliteReader, SqliteSummary

_LOG = logging.getLogger(__name__)

_LONG_LOG: Final = 64 << 20
"""Bytes of SQLite's write-ahead log above which a blocking reader is logged."""

_OWN_ERRORS: Final = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
"""SQLite's errors about one record, and not about the file."""

_INTERRUPT: Final = "UPDATE sessions SET closed = ?, interrupted = 1 WHERE closed IS NULL AND id LIKE ?"

_ADD_SESSION: Final = """
INSERT INTO sessions (id, policy, version, digest, labels, options, exploration, opened) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""

_ADD_SEGMENT: Final = """
INSERT INTO segments (session, first, count, signature, context, observations, advices, chances, latencies)
SELECT number, ?, ?, ?, ?, ?, ?, ?, ? FROM sessions WHERE id = ?
"""

_KEPT: Final = """
SELECT policy, version, digest, coalesce(reporter, ''), closed IS NOT NULL, decisions,
(SELECT coalesce(max(first + count - 1), 0) FROM segments WHERE segments.session = number), lost
FROM sessions LEFT JOIN openers ON openers.session = number WHERE id = ?
"""

_REOPEN: Final = "UPDATE sessions SET closed = NULL, interrupted = 0 WHERE id = ?"

_COUNT_DECISIONS: Final = "UPDATE sessions SET decisions = decisions + ? WHERE id = ?"

_ADD_OUTCOME: Final = """
INSERT OR REPLACE INTO outcomes (session, name, value) SELECT number, ?, ? FROM sessions WHERE id = ?
"""

_ADD_STEP: Final = "INSERT INTO rollout_steps (policy, what, rollout, at) VALUES (?, ?, ?, ?)"

_ADD_REPORTER: Final = f"""
UPDATE chosen SET reporters = substr(reporters || ?, 1, {REPORTERS})
WHERE session = (SELECT number FROM sessions WHERE id = ?)
"""  # noqa: S608 - our own number

_ADD_FAILURES: Final = "UPDATE chosen SET failures = ? WHERE session = (SELECT number FROM sessions WHERE id = ?)"

_ADD_CONTEXTS: Final = """
INSERT INTO context_outcomes (session, outcomes) SELECT number, ? FROM sessions WHERE id = ?
"""


class SqliteStore:
    """Writes the file; implements `Store`.

    Args:
        path: of the file.
        bounds: beyond which sessions are dropped.
        joins: whether another process of this server holds the file for this one.

    """

    def __init__(self, path: Path, bounds: Bounds, *, joins: bool = False) -> None:
        self._path = path
        self._packer = Packer()
        self._signatures: dict[str, int] = {}
        self._long_log = _LONG_LOG
        self._written = False
        self._database = Database(path, bounds.bytes, joins=joins)
        self._run = self._database.run
        try:
            with self._database.transaction():
                self._lifetime = Lifetime(self._database, bounds.clock)
                if not joins:
                    # These are sessions of a server that was killed; their end will not come.
                    self._run(_INTERRUPT, bounds.clock.now().wall, "%")
        except BaseException:
            self._database.close()
            raise
        self._clock = bounds.clock
        self._retention = Retention(self._database, bounds, self._lifetime)

    def write(self, records: Sequence[Record]) -> Mapping[int, PolicyBridgeError]:
        """Write all ``records`` in one transaction."""
        try:
            refused = self._write(records, self._add_fitting)
        except _UnfitError:
            # To be ready for this costs two statements for each record.
            refused = self._write(records, self._add_or_count_lost)
        self._written = True
        return refused

    def _write(
        self, records: Sequence[Record], add: Callable[[Record], PolicyBridgeError | None]
    ) -> dict[int, PolicyBridgeError]:
        refused: dict[int, PolicyBridgeError] = {}
        try:
            with self._database.transaction():
                for position, record in enumerate(records):
                    error = add(record)
                    if error is not None:
                        refused[position] = error
        except BaseException:
            # The transaction was rolled back, perhaps with the rows of these numbers.
            self._signatures.clear()
            # The log may still fit into the file; then it is reused from its beginning.
            self._database.empty_log()
            raise
        return refused

    def resume(self, resumed: Resumed) -> int:
        """Open a session again, or begin it; see `Resuming`."""
        with self._database.transaction():
            row = self._run(_KEPT, resumed.session.id).fetchone()
            if row is None:
                self._add(self._packer.pack(resumed))
                return 0
            held = check_resumed(resumed.session, Kept(row[:3], *row[3:]))
            self._run(_REOPEN, resumed.session.id)
            return held

    def _add_fitting(self, record: Record) -> PolicyBridgeError | None:
        try:
            return self._add_record(record)
        except Exception as error:
            if _is_of_the_file(error):
                raise
            raise _UnfitError from error

    def _add_or_count_lost(self, record: Record) -> PolicyBridgeError | None:
        self._run("SAVEPOINT record")
        try:
            refused = self._add_record(record)
        except Exception as error:
            if _is_of_the_file(error):
                raise
            # A record that cannot be packed or stored must not cost the records of other sessions.
            _LOG.exception("a record cannot be written to the ledger")
            self._run("ROLLBACK TO record")
            self._signatures.clear()
            if isinstance(record, Segment):
                self._add(LostRow(record.session_id, len(record.decisions)))
            refused = UnknownError(f"the ledger failed: {error!r}")
        self._run("RELEASE record")
        return refused

    def _add_record(self, record: Record) -> PolicyBridgeError | None:
        if not isinstance(record, Segment) or record.size <= LARGE_SEGMENT:
            return self._add(self._packer.pack(record))
        row = self._packer.segment(record, b"")
        add_large(self._database, row, self._signature(row.signature), partial(packed_observations, record))
        self._run(_COUNT_DECISIONS, row.count, row.session)
        return None

    def _add(self, row: Row) -> PolicyBridgeError | None:
        match row:
            case SegmentRow():
                self._add_segment(row)
            case SessionRow():
                self._add_session(row)
            case EndRow():
                end = row.when, row.interrupted, row.session
                self._run("UPDATE sessions SET closed = ?, interrupted = ? WHERE id = ?", *end)
                if row.failures:
                    self._run(_ADD_FAILURES, row.failures, row.session)
                return self._refusal(row.session)
            case LostRow():
                self._run("UPDATE sessions SET lost = lost + ? WHERE id = ?", row.count, row.session)
            case OutcomeRow():
                if row.values is not None:
                    self._merge(row, row.values)
                return self._refusal(row.session)
            case StepRow():
                self._run(_ADD_STEP, row.policy, row.what, row.rollout, row.when)
        return None

    def _add_session(self, row: SessionRow) -> None:
        *columns, file, alias, reporter = msgspec.structs.astuple(row)
        added = self._run(_ADD_SESSION, *columns)
        self._run("INSERT INTO births (session, lived) VALUES (?, ?)", added.lastrowid, self._lifetime.lived())
        if file:
            self._run("INSERT INTO files (session, name) VALUES (?, ?)", added.lastrowid, file)
        if alias:
            said = line(reporter)
            self._run("INSERT INTO chosen (session, alias, reporters) VALUES (?, ?, ?)", added.lastrowid, alias, said)
        if reporter:
            self._run("INSERT INTO openers (session, reporter) VALUES (?, ?)", added.lastrowid, reporter)

    def _add_segment(self, row: SegmentRow) -> None:
        session, first, count, signature, *columns = msgspec.structs.astuple(row)
        self._run(_ADD_SEGMENT, first, count, self._signature(signature), *columns, session)
        self._run(_COUNT_DECISIONS, count, session)

    def _signature(self, text: str) -> int:
        number = self._signatures.get(text)
        if number is None:
            self._run("INSERT OR IGNORE INTO signatures (text) VALUES (?)", text)
            (number,) = self._run("SELECT number FROM signatures WHERE text = ?", text).fetchone()
            self._signatures[text] = number
        return number

    def _refusal(self, session_id: str) -> PolicyBridgeError | None:
        """Say why a session's decisions cannot be acknowledged; ``None``: they can."""
        row = self._run("SELECT lost FROM sessions WHERE id = ?", session_id).fetchone()
        return refusal(session_id, None if row is None else row[0])

    def _merge(self, row: OutcomeRow, values: Mapping[str, float]) -> None:
        """Add an outcome to the earlier ones; a name that was reported before gets its new value."""
        self._run(
            "UPDATE sessions SET reported = ?, status = coalesce(nullif(?, ''), status) WHERE id = ?",
            row.when,
            row.status,
            row.session,
        )
        for name, value in values.items():
            self._run(_ADD_OUTCOME, name, value, row.session)
        if row.reporter:
            self._run(_ADD_REPORTER, line(row.reporter), row.session)
        if row.contexts is not None:
            self._run(_ADD_CONTEXTS, row.contexts, row.session)

    def prune(self) -> bool:
        """Drop some of the sessions beyond the bounds; return whether there may be more."""
        self._warn_of_long_log()
        with mapped(self._path):
            if self._retention.step():
                return True
        if self._written:
            self._written = False
            with self._database.transaction():
                self._lifetime.save()
        return False

    def interrupt(self, mark: str) -> None:
        """Mark the sessions of an ended process."""
        with self._database.transaction():
            self._run(_INTERRUPT, self._clock.now().wall, f"%{mark}")

    def _warn_of_long_log(self) -> None:
        size = self._database.log_size()
        if size >= self._long_log:
            self._long_log = 2 * size
            _LOG.warning(
                "the write-ahead log of the ledger %s has %d MiB: some program reads the ledger in one long "
                "transaction, and until it ends nothing can be moved from the log into the file",
                self._path,
                size >> 20,
            )

    def close(self) -> None:
        """Close the file."""
        self._database.close()


class _UnfitError(Exception):
    """A record cannot be packed or stored."""


def _is_of_the_file(error: Exception) -> bool:
    return isinstance(error, sqlite3.Error) and not isinstance(error, _OWN_ERRORS)


class SqliteLedger:
    """The kind `sqlite`; see `Ledger`."""

    open_store = SqliteStore
    join_store = partial(SqliteStore, joins=True)
    open_reader = SqliteReader
    open_summary = SqliteSummary
