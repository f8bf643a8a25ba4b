"""Batches over one connection to the database, each of them once."""

from contextlib import suppress
from typing import Final

import psycopg

from policybridge_core.errors import PolicyBridgeError
from policybridge_server.backends.contract import SessionView
from policybridge_server.ledger.contract import Bounds
from policybridge_server.ledger.place import DatabaseUrl
from policybridge_server.ledger.postgres.connection import Connected, connect, mapped, transaction
from policybridge_server.ledger.postgres.migrations import migrate
from policybridge_server.ledger.postgres.partitions import Partitions
from policybridge_server.ledger.postgres.tables import Tables
from policybridge_server.ledger.spool import Batch

# Acknowledged rows must be on the database's disk, because they leave the spool.
_DURABLE: Final = "synchronous_commit = on"

_KNOWN: Final = "INSERT INTO writers VALUES (%s, 0, clock_timestamp()) ON CONFLICT DO NOTHING"

# A connection that seemed lost may be in the middle of its commit: this waits for it.
_MARK: Final = "SELECT batch FROM writers WHERE id = %s FOR UPDATE"

_SENT: Final = "UPDATE writers SET batch = %s, seen = clock_timestamp() WHERE id = %s"

_INTERRUPT: Final = "UPDATE sessions SET closed = %s, interrupted = 1 WHERE closed IS NULL AND id LIKE %s"


class Sender:
    """One connection, and the batches that go over it, each of them once.

    Args:
        url: of the database.
        bounds: of the ledger.
        writer: the server's name.

    Raises:
        PolicyBridgeError: from any method, the database is away, or it refuses.

    """

    def __init__(self, url: DatabaseUrl, bounds: Bounds, writer: str) -> None:
        self._url = url
        self._connection: Connected = connect(url)
        try:
            migrate(self._connection, url)
            self._partitions = Partitions(self._connection, bounds, writer)
            with mapped(url):
                self._partitions.begin_first()
        except BaseException:
            self.close()
            raise
        self._tables = Tables(self._connection)

    def send(self, batches: list[Batch]) -> dict[int, dict[int, PolicyBridgeError]]:
        """Send batches of one writer in one transaction, without those that the database has; return its refusals."""
        writer = batches[0].writer
        try:
            with mapped(self._url), transaction(self._connection, _DURABLE):
                waiting = self._waiting(writer, batches)
                rows = [
                    ((batch.number, position), row) for batch in waiting for position, row in enumerate(batch.decoded())
                ]
                refused = self._tables.add(writer, rows) if rows else {}
        except BaseException:
            self._tables.forget()
            raise
        refusals: dict[int, dict[int, PolicyBridgeError]] = {}
        for (number, position), error in refused.items():
            refusals.setdefault(number, {})[position] = error
        return refusals

    def _waiting(self, writer: str, batches: list[Batch]) -> list[Batch]:
        """Mark batches as sent, and return the unsent ones: a commit may have succeeded without an answer."""
        row = self._connection.execute(_MARK, (writer,)).fetchone()
        if row is None:
            self._connection.execute(_KNOWN, (writer,))
            (row,) = self._connection.execute(_MARK, (writer,)).fetchall()
        waiting = [batch for batch in batches if batch.number > row["batch"]]
        if waiting:
            self._connection.execute(_SENT, (waiting[-1].number, writer))
        return waiting

    def interrupt(self, mark: str, when: float) -> None:
        """Mark the open sessions as interrupted whose ids end with ``mark``."""
        with mapped(self._url), transaction(self._connection):
            self._connection.execute(_INTERRUPT, (when, f"%{mark}"))

    def resume(self, writer: str, session: SessionView) -> int | None:
        """Let a session go on; see `Tables.resume`."""
        with mapped(self._url), transaction(self._connection, _DURABLE):
            return self._tables.resume(writer, session)

    def prune(self) -> bool:
        """Do a part of the retention; return whether there may be more."""
        with mapped(self._url):
            return self._partitions.step()

    def close(self) -> None:
        """Close the connection."""
        with suppress(psycopg.Error):
            self._connection.close()
