"""Reading the ledger `sqlite`."""

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from policybridge_core.errors import UnavailableError
from policybridge_server.ledger.failures import mapped
from policybridge_server.ledger.identity import connect_reader, is_ledger
from policybridge_server.ledger.summary import TableSummary
from policybridge_server.ledger.table_reader import TableReader

_HAS: Final = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"

# SQLite takes the other columns of a group from the row that has the maximum.
_VALUES: Final = """
SELECT name, version, value, reporters, max(number) AS number FROM (
  SELECT files.name AS name, sessions.version AS version, {value} AS value, chosen.reporters AS reporters,
  sessions.number AS number
  FROM sessions JOIN files ON files.session = sessions.number JOIN chosen ON chosen.session = sessions.number {join}
  WHERE sessions.policy = ? AND sessions.version IN (?, ?) AND chosen.alias = ? AND {counts}
  AND sessions.exploration IS NULL
) GROUP BY name, version, reporters
"""


class SqliteReader(TableReader):
    """Reads the file.

    Args:
        path: of the file.

    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._path = path
        if not is_ledger(path):
            raise UnavailableError(f"there is no ledger {path}")
        with mapped(path):
            self._database = connect_reader(path)
            self._database.row_factory = sqlite3.Row

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def size(self) -> int:
        """Give the bytes of the file and of its log."""
        return sum(map(_size, (self._path, self._path.with_name(f"{self._path.name}-wal"))))

    def _has(self, table: str) -> bool:
        return bool(self._rows(_HAS, table))

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        # Later writes stay in the log.
        with mapped(self._path):
            self._database.execute("BEGIN")
            try:
                yield
            finally:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")

    def _rows(self, statement: str, *values: Any) -> list[sqlite3.Row]:
        return self._database.execute(statement, values).fetchall()

    def _stream(self, statement: str, *values: Any) -> Iterable[sqlite3.Row]:
        return self._database.execute(statement, values)


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


class SqliteSummary(TableSummary, SqliteReader):
    """Implements `Summary`."""

    _failures = "chosen.failures"

    def _values(self, value: str, join: str, counts: str) -> str:
        return _VALUES.format(value=value, join=join, counts=counts)

    def _file(self, row: Any) -> str:
        if not self._has("files"):
            return ""
        rows = self._rows("SELECT name FROM files WHERE session = ?", row["number"])
        return str(rows[0]["name"]) if rows else ""
