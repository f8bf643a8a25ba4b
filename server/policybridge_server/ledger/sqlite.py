"""Ledger store `sqlite`: one file in WAL mode, written by one server and read by any number of others."""

import logging
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from policybridge_core.errors import PolicyBridgeError, UnknownError
from policybridge_server.ledger.contract import Bounds
from policybridge_server.ledger.database import Database
from policybridge_server.ledger.failures import mapped, refusal
from policybridge_server.ledger.large_segments import LARGE_SEGMENT
from policybridge_server.ledger.lifetime import Lifetime
from policybridge_server.ledger.records import Lost, Record, Resumed, Segment
from policybridge_server.ledger.resuming import Kept, check_resumed
from policybridge_server.ledger.retention import Retention
from policybridge_server.ledger.rows import Packer, Row, StepRow
from policybridge_server.ledger.sqlite_reader import SqliteReader, SqliteSummary
from policybridge_server.ledger.sqlite_sessions import SessionTable
from policybridge_server.ledger.totals import by_session

_LOG = logging.getLogger(__name__)

_LONG_LOG: Final = 64 << 20
"""Bytes of SQLite's write-ahead log above which a blocking reader is logged."""

_OWN_ERRORS: Final = (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, sqlite3.ProgrammingError)
"""SQLite's errors about one record, and not about the file."""

_INTERRUPT: Final = "UPDATE sessions SET closed = ?, interrupted = 1 WHERE closed IS NULL AND id LIKE ?"

_KEPT: Final = """
SELECT policy, version, digest, coalesce(reporter, ''), closed IS NOT NULL, decisions,
(SELECT coalesce(max(first + count - 1), 0) FROM segments WHERE segments.session = number), lost
FROM sessions LEFT JOIN openers ON openers.session = number WHERE id = ?
"""

_REOPEN: Final = "UPDATE sessions SET closed = NULL, interrupted = 0 WHERE id = ?"

_ADD_STEP: Final = "INSERT INTO rollout_steps (policy, what, rollout, at) VALUES (?, ?, ?, ?)"


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
        self._sessions = SessionTable(self._database, self._lifetime)
        self._retention = Retention(self._database, bounds, self._lifetime)

    def write(self, records: Sequence[Record]) -> Mapping[int, PolicyBridgeError]:
        """Write all ``records`` in one transaction."""
        try:
            refused = self._write(records, self._add_fitting)
        except _UnfitError:
            # To be ready for this costs two statements for each record, and a session's row several writes.
            refused = self._write(records, self._add_or_count_lost)
        self._written = True
        return refused

    def _write(
        self, records: Sequence[Record], add: Callable[[Sequence[Record]], dict[int, PolicyBridgeError]]
    ) -> dict[int, PolicyBridgeError]:
        try:
            with self._database.transaction():
                return add(records)
        except BaseException:
            # The transaction was rolled back, perhaps with the rows of these numbers.
            self._sessions.forget()
            # The log may still fit into the file; then it is reused from its beginning.
            self._database.empty_log()
            raise

    def resume(self, resumed: Resumed) -> int:
        """Open a session again, or begin it; see `Resuming`."""
        with self._database.transaction():
            row = self._run(_KEPT, resumed.session.id).fetchone()
            if row is None:
                self._add([resumed])
                return 0
            held = check_resumed(resumed.session, Kept(row[:3], *row[3:]))
            self._run(_REOPEN, resumed.session.id)
            return held

    def _add_fitting(self, records: Sequence[Record]) -> dict[int, PolicyBridgeError]:
        try:
            return self._add(records)
        except Exception as error:
            if _is_of_the_file(error):
                raise
            raise _UnfitError from error

    def _add_or_count_lost(self, records: Sequence[Record]) -> dict[int, PolicyBridgeError]:
        refused: dict[int, PolicyBridgeError] = {}
        for position, record in enumerate(records):
            self._run("SAVEPOINT record")
            try:
                for error in self._add([record]).values():
                    refused[position] = error
            except Exception as error:
                if _is_of_the_file(error):
                    raise
                # A record that cannot be packed or stored must not cost the records of other sessions.
                _LOG.exception("a record cannot be written to the ledger")
                self._run("ROLLBACK TO record")
                self._sessions.forget()
                if isinstance(record, Segment):
                    self._add([Lost(record.session_id, len(record.decisions))])
                refused[position] = UnknownError(f"the ledger failed: {error!r}")
            self._run("RELEASE record")
        return refused

    def _add(self, records: Sequence[Record]) -> dict[int, PolicyBridgeError]:
        """Add records; return why some cannot be acknowledged, by their positions."""
        large = {
            (record.session_id, record.first): record
            for record in records
            if isinstance(record, Segment) and record.size > LARGE_SEGMENT
        }
        rows = [(position, self._packed(record)) for position, record in enumerate(records)]
        refused: dict[int, PolicyBridgeError] = {}
        for name, change in by_session(rows).items():
            error = refusal(name, self._sessions.write(name, change, large))
            if error is not None:
                refused |= dict.fromkeys(change.asked, error)
        for _, row in rows:
            if isinstance(row, StepRow):
                self._run(_ADD_STEP, row.policy, row.what, row.rollout, row.when)
        return refused

    def _packed(self, record: Record) -> Row:
        if isinstance(record, Segment) and record.size > LARGE_SEGMENT:
            return self._packer.segment(record, b"")
        return self._packer.pack(record)

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
