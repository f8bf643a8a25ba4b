"""Summaries of the ledger `sqlite`."""

from typing import Any, Final

from policybridge_server.ledger.sqlite_reader import SqliteReader
from policybridge_server.ledger.summary import TableSummary

# SQLite takes the other columns of a group from the row that has the maximum.
_VALUES: Final = """
SELECT name, version, value, max(number) FROM (
  SELECT files.name AS name, sessions.version AS version, {value} AS value, sessions.number AS number
  FROM sessions JOIN files ON files.session = sessions.number {join}
  WHERE sessions.policy = ? AND sessions.version IN (?, ?) AND sessions.reported IS NOT NULL
  AND sessions.exploration IS NULL
) GROUP BY name, version
"""


class SqliteSummary(TableSummary, SqliteReader):
    """Implements `Summary`."""

    def _values(self, value: str, join: str) -> str:
        return _VALUES.format(value=value, join=join)

    def _file(self, row: Any) -> str:
        if not self._has("files"):
            return ""
        found = self._rows("SELECT name FROM files WHERE session = ?", row["number"])
        return str(found[0]["name"]) if found else ""
