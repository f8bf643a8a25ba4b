"""Partitions: the sessions of about a day, with their rows; retention drops the oldest."""

from collections.abc import Iterator
from typing import Any, Final

import psycopg

from policybridge_server.ledger.clock import Instant
from policybridge_server.ledger.contract import Bounds
from policybridge_server.ledger.postgres.connection import SCHEMA, Connected, transaction

SHIFT: Final = 36
"""Bits of a session's number below those of its partition: a browser's exact numbers have 53."""

_TABLES: Final = {
    "sessions": "number",
    "segments": "session",
    "outcomes": "session",
    "context_outcomes": "session",
}
"""Each table with partitions, and the column that selects a row's partition."""

_LOCK: Final = 0x50424C48
"""One server drops at a time."""

_SPAN: Final = 86400.0
"""Seconds of a partition, unless the bounds are narrow."""

_PARTS: Final = 8
"""A partition takes at most about this part of the age or of the bytes that a ledger may have."""

_SMALLEST: Final = 1 << 20
"""Bytes of a partition: its empty tables and indexes have 0.1 MiB."""

_SESSIONS: Final = 200
"""Number of sessions removed in one step if a partition cannot be dropped."""

_FORGOTTEN: Final = "1 day"
"""After this the sessions of a server that writes no more count as over."""

_PATIENCE: Final = "lock_timeout = '500ms'"
"""How long readers and writers wait for a partition that is dropped, which waits for those before them."""

_NEWEST: Final = "SELECT number, born FROM partitions ORDER BY number DESC LIMIT 1"

_OVER: Final = """
SELECT number, ended FROM (SELECT number, lead(born) OVER (ORDER BY number) AS ended FROM partitions) AS each
WHERE ended IS NOT NULL ORDER BY number
"""

_LEFT: Final = f"""
UPDATE sessions SET closed = extract(epoch FROM clock_timestamp()), interrupted = 1
FROM writers WHERE sessions.closed IS NULL AND writers.id = sessions.writer
AND writers.seen < clock_timestamp() - interval '{_FORGOTTEN}'
"""  # noqa: S608 - our own texts, here and below

_SIZE: Final = f"""
SELECT coalesce(sum(pg_total_relation_size(to_regclass('{SCHEMA}.' || name || '_p' || partitions.number))), 0)::bigint
AS number FROM partitions, unnest(%s::text[]) AS name WHERE %s::integer IS NULL OR partitions.number = %s
"""  # noqa: S608


def _bounds(partition: int) -> tuple[int, int]:
    """Give the first number of a partition's sessions, and that after the last."""
    return partition << SHIFT, (partition + 1) << SHIFT


class Partitions:
    """Begins partitions, and drops them. Every step is short; locks are held for milliseconds.

    Args:
        connection: the database's connection.
        bounds: the ledger's bounds.
        writer: the server's name, or none.

    """

    def __init__(self, connection: Connected, bounds: Bounds, writer: str) -> None:
        self._connection = connection
        self._bounds = bounds
        self._writer = writer
        self._last: Instant | None = None

    def begin_first(self) -> None:
        """Begin a partition if there is none yet."""
        with transaction(self._connection):
            self._run("SELECT pg_advisory_xact_lock(%s)", _LOCK)
            if not self._number("SELECT count(*) AS number FROM partitions"):
                self._begin(1)

    def step(self) -> bool:
        """Do a part of the work; return whether there may be more."""
        try:
            with transaction(self._connection, _PATIENCE):
                if not self._number("SELECT pg_try_advisory_xact_lock(%s)::integer AS number", _LOCK):
                    return False
                self._live()
                self._begin_next()
                return self._drop()
        except (psycopg.errors.LockNotAvailable, psycopg.errors.DeadlockDetected):
            # A long read blocks it. The next step tries again.
            return False

    def _live(self) -> None:
        """Count the seconds of the ledger's life: by the database's clock, and no faster than this machine's uptime."""
        now, last = self._bounds.clock.now(), self._last
        self._last = now
        most = now.uptime - last.uptime if last is not None and last.boot == now.boot else None
        self._run(
            "UPDATE lifetime SET seen = clock_timestamp(), lived = lived + greatest(0, least("
            "extract(epoch FROM clock_timestamp() - seen)::float8, %s::float8))",
            most,
        )
        self._run("UPDATE writers SET seen = clock_timestamp() WHERE id = %s", self._writer)
        self._run(_LEFT)

    def _lived(self) -> float:
        (row,) = self._run("SELECT lived FROM lifetime").fetchall()
        return float(row["lived"])

    def _begin_next(self) -> None:
        (newest,) = self._run(_NEWEST).fetchall()
        number, age = newest["number"], self._lived() - newest["born"]
        span = _SPAN if self._bounds.age is None else min(_SPAN, self._bounds.age / _PARTS)
        if self._is_used(number) and (age >= span or self._is_full(number)):
            self._begin(number + 1)

    def _is_used(self, partition: int) -> bool:
        query = "SELECT EXISTS (SELECT 1 FROM sessions WHERE number >= %s AND number < %s)::integer AS number"
        return bool(self._number(query, *_bounds(partition)))

    def _is_full(self, partition: int) -> bool:
        most = self._bounds.bytes
        return most is not None and self._size(partition) > max(_SMALLEST, most // _PARTS)

    def _size(self, partition: int | None = None) -> int:
        return self._number(_SIZE, list(_TABLES), partition, partition)

    def _begin(self, partition: int) -> None:
        for table in _TABLES:
            name, (first, after) = f"{table}_p{partition}", _bounds(partition)
            # Attaching a table blocks no reader; creating it as a partition would.
            self._run(f"CREATE TABLE {name} (LIKE {table} INCLUDING ALL)")
            self._run(f"ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ({first}) TO ({after})")
        self._run("INSERT INTO partitions VALUES (%s, (SELECT lived FROM lifetime))", partition)

    def _drop(self) -> bool:
        """Drop sessions beyond the bounds: one partition, or some sessions of one that has open sessions."""
        for partition in self._exceeding():
            open_sessions = (
                "SELECT count(*) AS number FROM sessions WHERE closed IS NULL AND number >= %s AND number < %s"
            )
            if not self._number(open_sessions, *_bounds(partition)):
                # In the order in which readers and writers take their locks.
                for table in _TABLES:
                    self._run(f"DROP TABLE {table}_p{partition}")
                self._run("DELETE FROM partitions WHERE number = %s", partition)
                return True
            if self._remove_sessions(partition):
                return True
        return False

    def _exceeding(self) -> Iterator[int]:
        bytes_, age = self._bounds.bytes, self._bounds.age
        if bytes_ is None and age is None:
            return
        lived, size = self._lived(), 0 if bytes_ is None else self._size()
        for row in self._run(_OVER).fetchall():
            old = age is not None and lived - row["ended"] > age
            large = bytes_ is not None and size > bytes_
            if not (old or large):
                return
            yield row["number"]
            # It has only open sessions: try the next one.
            size -= 0 if bytes_ is None else self._size(row["number"])

    def _remove_sessions(self, partition: int) -> bool:
        """Remove some sessions that are over, one by one, from a partition that must stay."""
        over = "SELECT number FROM sessions WHERE closed IS NOT NULL AND number >= %s AND number < %s LIMIT %s"
        numbers = [row["number"] for row in self._run(over, *_bounds(partition), _SESSIONS)]
        for table, column in _TABLES.items():
            self._run(f"DELETE FROM {table} WHERE {column} = ANY(%s)", numbers)  # noqa: S608 - our own names
        return bool(numbers)

    def _run(self, statement: str, *values: Any) -> psycopg.Cursor[dict[str, Any]]:
        return self._connection.execute(statement, values or None)

    def _number(self, statement: str, *values: Any) -> int:
        (row,) = self._run(statement, *values).fetchall()
        return int(row["number"])
