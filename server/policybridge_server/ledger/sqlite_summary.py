"""Summaries of the ledger `sqlite`."""

from typing import Any, Final

from policybridge_server.ledger.sqlite_reader import SqliteReader
from policybridge_server.ledger.summary import TableSummary

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
