"""The reader of the ledger `postgresql`."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from policybridge_server.ledger.place import DatabaseUrl
from policybridge_server.ledger.postgres.connection import SCHEMA, Connected, connect, mapped, transaction
from policybridge_server.ledger.postgres.migrations import check_format
from policybridge_server.ledger.postgres.text import unescaped
from policybridge_server.ledger.query import Query
from policybridge_server.ledger.summary import TableSummary
from policybridge_server.ledger.table_reader import TableReader

_LABEL: Final = "labels::json ->> ? = ?"

_FETCHED: Final = 16
"""Number of segments fetched at a time."""

_SIZE: Final = """
SELECT coalesce(sum(pg_total_relation_size(pg_class.oid)), 0)::bigint AS size FROM pg_class
JOIN pg_namespace ON pg_namespace.oid = relnamespace WHERE nspname = ? AND relkind = 'r'
"""

_VALUES: Final = """
SELECT DISTINCT ON (sessions.file, sessions.version, sessions.reporters)
sessions.file AS name, sessions.version AS version, {value} AS value, sessions.reporters AS reporters,
sessions.number AS number
FROM sessions {join}
WHERE sessions.policy = ? AND sessions.version IN (?, ?) AND sessions.alias = ? AND {counts}
AND sessions.exploration IS NULL AND sessions.file <> ''
ORDER BY sessions.file, sessions.version, sessions.reporters, sessions.number DESC
"""


class PostgresReader(TableReader):
    """Reads the database; the next read replaces a lost connection.

    Args:
        url: the URL of the database.

    Raises:
        InvalidError: the URL is malformed.
        UnavailableError: from any method: the database is away, refuses the connection, or has no ledger.

    """

    def __init__(self, url: DatabaseUrl) -> None:
        super().__init__(url)
        self._url = url
        self._connection = self._connected()

    def _connected(self) -> Connected:
        connection = connect(self._url)
        try:
            check_format(connection, self._url)
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def size(self) -> int:
        """Give the bytes of all tables and indexes."""
        with self._transaction():
            return int(self._rows(_SIZE, SCHEMA)[0]["size"])

    def _condition(self, query: Query) -> tuple[str, list[Any]]:
        return query.to_sql(_LABEL)

    def _texts(self, column: str) -> dict[str, str]:
        return {unescaped(name): unescaped(value) for name, value in super()._texts(column).items()}

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        if self._connection.broken or self._connection.closed:
            self._connection = self._connected()
        reading = "transaction_isolation = 'repeatable read'", "transaction_read_only = on"
        with mapped(self._url), transaction(self._connection, *reading):
            yield

    def _rows(self, statement: str, *values: Any) -> list[Any]:
        return self._connection.execute(statement.replace("?", "%s"), values).fetchall()

    def _stream(self, statement: str, *values: Any) -> Iterable[Any]:
        with self._connection.cursor("segments") as cursor:
            cursor.itersize = _FETCHED
            yield from cursor.execute(statement.replace("?", "%s"), values)


class PostgresSummary(TableSummary, PostgresReader):
    """Implements `Summary`."""

    _failures = "sessions.failures"

    def _values(self, value: str, join: str, counts: str) -> str:
        return _VALUES.format(value=value, join=join, counts=counts)

    def _file(self, row: Any) -> str:
        return str(row["file"])
