"""Reading the ledger `sqlite`."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from policybridge_core.errors import InvalidError, UnavailableError
from policybridge_serdes import Exploration, Outcome, PolicyVersion, Signature
from policybridge_serdes.interactive import Header, InteractiveReader
from policybridge_serdes.specs import MAX_LAYOUT_BYTES
from policybridge_server.ledger.database import mapped
from policybridge_server.ledger.packing import unpack_numbers, unpack_rows
from policybridge_server.ledger.query import Query, SessionRecord
from policybridge_server.ledger.schema import FORMAT
from policybridge_server.ledger.trajectory import DecisionBatch

_PAGE: Final = 200
"""Sessions in one read: a longer one would keep SQLite from reusing its log."""

_NEXT_SEGMENT: Final = "SELECT * FROM segments WHERE session = ? AND first > ? ORDER BY first LIMIT 1"


class SqliteReader:
    """Reads the file; see `Reader`. Every read is short, so that a server can write at the same time.

    Args:
        path: of the file.

    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._signatures: dict[int, Signature] = {}
        with mapped(self._path):
            if not self._path.is_file():
                raise UnavailableError(f"there is no ledger {path}")
            self._database = sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro", uri=True)
            (found,) = self._database.execute("PRAGMA user_version").fetchone()
        if found != FORMAT:
            self._database.close()
            raise UnavailableError(f"{path} is no ledger of format {FORMAT}")

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def sessions(self, query: Query) -> Iterator[SessionRecord]:
        """Give the sessions that ``query`` describes, the oldest first."""
        condition, values = query.to_sql()
        last = -1
        while rows := self._page(condition, values, last):
            yield from (self._session(row) for row in rows)
            last = rows[-1]["number"]

    def segments(self, session: SessionRecord) -> Iterator[DecisionBatch]:
        """Give a session's decisions as they were written: some hundreds at a time."""
        first = 0
        while row := self._one(_NEXT_SEGMENT, session.number, first):
            first = row["first"]
            yield self._segment(session, row)

    def _segment(self, session: SessionRecord, row: sqlite3.Row) -> DecisionBatch:
        signature, count, first = self._signature(row["signature"]), row["count"], row["first"]
        chances = row["chances"]
        return DecisionBatch(
            signature,
            [session],
            np.zeros(count, np.int64),
            np.arange(first, first + count),
            np.full(count, row["context"], object),
            unpack_rows(signature.features, row["observations"], count),
            unpack_rows(signature.advice_layout, row["advices"], count),
            np.full(count, np.nan) if chances is None else unpack_numbers(chances, "<f8", count),
            unpack_numbers(row["latencies"], "<i8", count),
        )

    def _signature(self, number: int) -> Signature:
        if number not in self._signatures:
            row = self._one("SELECT text FROM signatures WHERE number = ?", number)
            (header,) = InteractiveReader(MAX_LAYOUT_BYTES).feed(row["text"].encode() + b"\n") if row else (None,)
            if not isinstance(header, Header):
                raise InvalidError(f"the ledger {self._path} is damaged: it has no signature {number}")
            self._signatures[number] = header.signature
        return self._signatures[number]

    def _page(self, condition: str, values: list[Any], last: int) -> list[sqlite3.Row]:
        # Safe: the condition is text of `Query.to_sql`; the user's values are passed separately.
        statement = f"SELECT * FROM sessions WHERE number > ? AND {condition} ORDER BY number LIMIT {_PAGE}"  # noqa: S608
        return self._rows(statement, last, *values)

    def _session(self, row: sqlite3.Row) -> SessionRecord:
        outcome = None
        if row["reported"] is not None:
            found = self._rows("SELECT name, value FROM outcomes WHERE session = ?", row["number"])
            outcome = Outcome({pair["name"]: pair["value"] for pair in found}, row["status"])
        exploration = row["exploration"]
        return SessionRecord(
            number=row["number"],
            id=row["id"],
            policy=PolicyVersion(row["policy"], row["version"], row["digest"]),
            labels=msgspec.json.decode(row["labels"], type=dict[str, str]),
            options=msgspec.json.decode(row["options"], type=dict[str, str]),
            exploration=None if exploration is None else msgspec.json.decode(exploration, type=Exploration),
            opened=row["opened"],
            closed=row["closed"],
            interrupted=bool(row["interrupted"]),
            decisions=row["decisions"],
            lost=row["lost"],
            outcome=outcome,
        )

    def _one(self, statement: str, *values: Any) -> sqlite3.Row | None:
        return next(iter(self._rows(statement, *values)), None)

    def _rows(self, statement: str, *values: Any) -> list[sqlite3.Row]:
        with mapped(self._path):
            cursor = self._database.execute(statement, values)
            cursor.row_factory = sqlite3.Row
            return cursor.fetchall()
