"""Ledger store `sqlite`: one file in WAL mode, written by one server and read by any number of others."""

import logging
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import time
from typing import Any, Final

import msgspec

from policybridge_core.errors import NotFoundError, PolicyBridgeError, TooLargeError, UnknownError
from policybridge_serdes import Outcome, Signature
from policybridge_serdes.interactive import header_line
from policybridge_server.ledger.contract import Bounds
from policybridge_server.ledger.database import Database, mapped
from policybridge_server.ledger.packing import pack_numbers, pack_rows
from policybridge_server.ledger.records import Begun, Ended, Lost, Record, Reported, Segment
from policybridge_server.ledger.sqlite_reader import SqliteReader

_LOG = logging.getLogger(__name__)

_PRUNE_TO: Final = 0.9
"""Part of the bound in bytes to which sessions are dropped, so that this happens from time to time only."""

# Few sessions in one transaction, so that acknowledgements do not wait long for it.
_OLDEST: Final = "SELECT number FROM sessions WHERE closed IS NOT NULL AND opened < ? ORDER BY number LIMIT 50"

_ADD_SESSION: Final = """
INSERT INTO sessions (id, policy, version, digest, labels, options, exploration, opened) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
"""

_ADD_SEGMENT: Final = """
INSERT INTO segments (session, first, count, signature, context, observations, advices, chances, latencies)
SELECT number, ?, ?, ?, ?, ?, ?, ?, ? FROM sessions WHERE id = ?
"""

_DROP: Final = (
    "DELETE FROM segments WHERE session = ?",
    "DELETE FROM outcomes WHERE session = ?",
    "DELETE FROM sessions WHERE number = ?",
)


class SqliteStore:
    """Writes the file; implements `Store`.

    Args:
        path: of the file.
        bounds: beyond which sessions are dropped.

    """

    def __init__(self, path: Path, bounds: Bounds) -> None:
        self._path = path
        self._bounds = bounds
        self._signatures: dict[Signature, int] = {}
        self._database = Database(path)
        self._run = self._database.run
        with mapped(path):
            # These are sessions of a server that was killed; their end will not come.
            self._run("UPDATE sessions SET closed = ?, interrupted = 1 WHERE closed IS NULL", time())

    def write(self, records: Sequence[Record]) -> Mapping[int, PolicyBridgeError]:
        """Write all ``records`` in one transaction."""
        refused: dict[int, PolicyBridgeError] = {}
        try:
            with self._database.transaction():
                for position, record in enumerate(records):
                    error = self._add_or_count_lost(record)
                    if error is not None:
                        refused[position] = error
        except BaseException:
            # The transaction was rolled back, and with it perhaps the rows that these numbers stand for.
            self._signatures.clear()
            raise
        return refused

    def _add_or_count_lost(self, record: Record) -> PolicyBridgeError | None:
        try:
            return self._add(record)
        except sqlite3.Error:
            raise
        except Exception as error:
            # A record that cannot be packed or stored must not cost the records of other sessions.
            _LOG.exception("a record cannot be written to the ledger")
            if isinstance(record, Segment):
                self._add(Lost(record.session_id, len(record.decisions)))
            return UnknownError(f"the ledger failed: {error!r}")

    def _add(self, record: Record) -> PolicyBridgeError | None:
        match record:
            case Segment():
                self._add_segment(record)
            case Begun():
                self._add_session(record)
            case Ended():
                self._run("UPDATE sessions SET closed = ? WHERE id = ?", record.when, record.session_id)
            case Lost():
                self._run("UPDATE sessions SET lost = lost + ? WHERE id = ?", record.count, record.session_id)
            case Reported():
                return self._add_outcome(record)
        return None

    def _add_session(self, record: Begun) -> None:
        session, policy = record.session, record.session.policy
        self._run(
            _ADD_SESSION,
            session.id,
            policy.name,
            policy.version,
            policy.digest,
            _json(session.labels),
            _json(session.options),
            None if session.exploration is None else _json(session.exploration),
            record.when,
        )

    def _add_segment(self, segment: Segment) -> None:
        rows, advices, chances, nanoseconds = zip(*segment.decisions, strict=True)
        explored = chances[0] is not None
        self._run(
            _ADD_SEGMENT,
            segment.first,
            len(rows),
            self._signature(segment.signature),
            segment.context,
            pack_rows(segment.signature.features, rows),
            pack_rows(segment.signature.advice_layout, advices),
            pack_numbers(chances, "<f8") if explored else None,
            pack_numbers(nanoseconds, "<i8"),
            segment.session_id,
        )
        self._run("UPDATE sessions SET decisions = decisions + ? WHERE id = ?", len(rows), segment.session_id)

    def _signature(self, signature: Signature) -> int:
        number = self._signatures.get(signature)
        if number is None:
            text = header_line(signature).decode().rstrip()
            self._run("INSERT OR IGNORE INTO signatures (text) VALUES (?)", text)
            (number,) = self._run("SELECT number FROM signatures WHERE text = ?", text).fetchone()
            self._signatures[signature] = number
        return number

    def _add_outcome(self, record: Reported) -> PolicyBridgeError | None:
        found = self._run("SELECT number, lost FROM sessions WHERE id = ?", record.session_id).fetchone()
        if found is None:
            return NotFoundError(f"the ledger holds no session {record.session_id!r}")
        number, lost = found
        if record.outcome is not None:
            self._merge(number, record.outcome, record.when)
        if lost:
            return TooLargeError(f"the ledger could not keep up: {lost} decisions of the session are lost")
        return None

    def _merge(self, number: int, outcome: Outcome, when: float) -> None:
        """Add an outcome to the earlier ones; a name that was reported before gets its new value."""
        self._run(
            "UPDATE sessions SET reported = ?, status = coalesce(nullif(?, ''), status) WHERE number = ?",
            when,
            outcome.status,
            number,
        )
        for name, value in outcome.values.items():
            self._run("INSERT OR REPLACE INTO outcomes (session, name, value) VALUES (?, ?, ?)", number, name, value)

    def prune(self) -> None:
        """Drop the oldest sessions that are over while a bound is exceeded."""
        bounds = self._bounds
        with mapped(self._path):
            if bounds.age is not None:
                while self._drop(time() - bounds.age):
                    pass
            if bounds.bytes is not None and self._database.used() > bounds.bytes:
                while self._database.used() > _PRUNE_TO * bounds.bytes and self._drop(time()):
                    pass
                self._database.shrink()

    def _drop(self, before: float) -> bool:
        """Drop some of the sessions that began before ``before`` and are over; say whether there were any."""
        with self._database.transaction():
            found = self._run(_OLDEST, before).fetchall()
            for statement in _DROP:
                self._database.run_for_each(statement, found)
        return bool(found)

    def close(self) -> None:
        """Close the file."""
        self._database.close()


class SqliteLedger:
    """The kind `sqlite`; see `Ledger`."""

    open_store = SqliteStore
    open_reader = SqliteReader


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
