"""Reading a ledger of tables: the common part of all databases."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Final

import msgspec
import numpy as np

from policybridge_core.errors import InvalidError
from policybridge_serdes import Exploration, Outcome, PolicyVersion, Signature
from policybridge_serdes.interactive import Header, InteractiveReader
from policybridge_serdes.limits import UNLIMITED
from policybridge_server.ledger.contract import DroppedError
from policybridge_server.ledger.failures import undamaged
from policybridge_server.ledger.packing import unpack_numbers, unpack_outcomes, unpack_rows
from policybridge_server.ledger.place import Place
from policybridge_server.ledger.query import Query, SessionRecord
from policybridge_server.ledger.trajectory import DecisionBatch

_PAGE: Final = 200
"""Sessions in one read: a longer read would block the cleaning up of the database."""

_CHUNK: Final = 32 << 20
"""Bytes of segments in one read, about. A session that has fewer is read whole, or found to be dropped."""

_SEGMENTS: Final = "SELECT * FROM segments WHERE session = ? AND first > ? ORDER BY first"

_CONTEXTS: Final = "SELECT outcomes FROM context_outcomes WHERE session = ? ORDER BY number"

_OUTCOMES: Final = "SELECT name, value FROM outcomes WHERE session = ?"


class TableReader(ABC):
    """Implements `Reader`. Every read is short, so that servers can write at the same time.

    Statements are those of SQLite; a database with other placeholders replaces them.

    Args:
        place: of the ledger; messages name it.

    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._signatures: dict[int, Signature] = {}

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""

    @abstractmethod
    def size(self) -> int:
        """Give the ledger's bytes on disk."""

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[None]:
        """See one state of the ledger in the block, which must be short."""

    @abstractmethod
    def _rows(self, statement: str, *values: Any) -> list[Any]:
        """Run a statement in a transaction, and give its rows, whose columns have names."""

    @abstractmethod
    def _stream(self, statement: str, *values: Any) -> Iterable[Any]:
        """Run a statement in a transaction whose rows may exceed the memory."""

    def _condition(self, query: Query) -> tuple[str, list[Any]]:
        return query.to_sql()

    def _texts(self, column: str) -> dict[str, str]:
        """Give labels or options."""
        return msgspec.json.decode(column, type=dict[str, str])

    def _has(self, table: str) -> bool:  # noqa: ARG002
        """Whether the ledger has a table that those of earlier versions lack."""
        return True

    def sessions(self, query: Query) -> Iterator[SessionRecord]:
        """Give the sessions that ``query`` describes, the oldest first."""
        condition, values = self._condition(query)
        last = -1
        while page := self._page(condition, values, last):
            yield from page
            last = page[-1].number

    def segments(self, session: SessionRecord) -> Iterator[DecisionBatch]:
        """Give a session's decisions as they were written: some hundreds at a time."""
        held, first, more = 0, 0, True
        while more:
            rows, more = self._chunk(session, first)
            for row in rows:
                batch = self._segment(session, row)
                held, first = held + len(batch), row["first"]
                yield batch
        if held < session.decisions:
            raise InvalidError(
                f"the ledger {self._place} is damaged: it has {held} of the {session.decisions} decisions of session "
                f"{session.id}"
            )

    def _chunk(self, session: SessionRecord, first: int) -> tuple[list[Any], bool]:
        """Read segments after that of step ``first``, while the session exists; return whether there may be more."""
        with self._transaction():
            if not self._rows("SELECT 1 FROM sessions WHERE number = ?", session.number):
                raise DroppedError(
                    f"session {session.id} was dropped from the ledger {self._place} while it was read: the ledger is "
                    "bounded, by --ledger-max-bytes or --ledger-max-age"
                )
            rows, size = list[Any](), 0
            for row in self._stream(_SEGMENTS, session.number, first):
                self._signature(row["signature"])
                rows.append(row)
                with undamaged(self._place):
                    size += len(row["observations"]) + len(row["advices"])
                if size > _CHUNK:
                    return rows, True
            return rows, False

    def context_outcomes(self, session: SessionRecord) -> dict[str, dict[str, float]]:
        """Give the numbers by context; see `Reader`."""
        with self._transaction():
            if not self._rows("SELECT 1 FROM sessions WHERE number = ?", session.number):
                raise DroppedError(f"the session {session.id} is no longer in the ledger")
            rows = self._rows(_CONTEXTS, session.number) if self._has("context_outcomes") else []
        merged: dict[str, dict[str, float]] = {}
        with undamaged(self._place):
            for row in rows:
                for context, values in unpack_outcomes(row["outcomes"]).items():
                    merged.setdefault(context, {}).update(values)
        return merged

    def _segment(self, session: SessionRecord, row: Any) -> DecisionBatch:
        with undamaged(self._place):
            signature, count, first = self._signature(row["signature"]), row["count"], row["first"]
            chances = row["chances"]
            # First the columns: what follows takes as much memory as a damaged row says.
            latencies = unpack_numbers(row["latencies"], "<i8", count)
            observations = unpack_rows(signature.features, row["observations"], count)
            advices = unpack_rows(signature.advice_layout, row["advices"], count)
            return DecisionBatch(
                signature,
                [session],
                np.zeros(count, np.int64),
                np.arange(first, first + count),
                np.full(count, row["context"], object),
                observations,
                advices,
                np.full(count, np.nan) if chances is None else unpack_numbers(chances, "<f8", count),
                latencies,
            )

    def _signature(self, number: int) -> Signature:
        """Return a signature: in a transaction, unless it is cached."""
        if number not in self._signatures:
            rows = self._rows("SELECT text FROM signatures WHERE number = ?", number)
            (header,) = InteractiveReader(UNLIMITED).feed(rows[0]["text"].encode() + b"\n") if rows else (None,)
            if not isinstance(header, Header):
                raise InvalidError(f"the ledger {self._place} is damaged: it has no signature {number}")
            self._signatures[number] = header.signature
        return self._signatures[number]

    def _page(self, condition: str, values: list[Any], last: int) -> list[SessionRecord]:
        # Safe: the condition is text of `Query.to_sql`; the user's values are passed separately.
        statement = f"SELECT * FROM sessions WHERE number > ? AND {condition} ORDER BY number LIMIT {_PAGE}"  # noqa: S608
        with self._transaction(), undamaged(self._place):
            return [self._session(row) for row in self._rows(statement, last, *values)]

    def _session(self, row: Any) -> SessionRecord:
        outcome = None
        if row["reported"] is not None:
            rows = self._rows(_OUTCOMES, row["number"])
            outcome = Outcome({pair["name"]: pair["value"] for pair in rows}, row["status"])
        exploration = row["exploration"]
        return SessionRecord(
            number=row["number"],
            id=row["id"],
            policy=PolicyVersion(row["policy"], row["version"], row["digest"]),
            labels=self._texts(row["labels"]),
            options=self._texts(row["options"]),
            exploration=None if exploration is None else msgspec.json.decode(exploration, type=Exploration),
            opened=row["opened"],
            closed=row["closed"],
            interrupted=bool(row["interrupted"]),
            decisions=row["decisions"],
            lost=row["lost"],
            outcome=outcome,
        )
