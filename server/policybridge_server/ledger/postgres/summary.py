"""Summaries of the ledger `postgresql`."""

from typing import Any, Final

from policybridge_server.ledger.postgres.reader import PostgresReader
from policybridge_server.ledger.summary import TableSummary

_VALUES: Final = """
SELECT DISTINCT ON (sessions.file, sessions.version, sessions.reporters)
sessions.file AS name, sessions.version AS version, {value} AS value, sessions.reporters AS reporters,
sessions.number AS number
FROM sessions {join}
WHERE sessions.policy = ? AND sessions.version IN (?, ?) AND sessions.alias = ? AND {counts}
AND sessions.exploration IS NULL AND sessions.file <> ''
ORDER BY sessions.file, sessions.version, sessions.reporters, sessions.number DESC
"""


class PostgresSummary(TableSummary, PostgresReader):
    """Implements `Summary`."""

    _failures = "sessions.failures"

    def _values(self, value: str, join: str, counts: str) -> str:
        return _VALUES.format(value=value, join=join, counts=counts)

    def _file(self, row: Any) -> str:
        return str(row["file"])
