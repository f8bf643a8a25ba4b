"""Ledger store `postgresql`: a database that many servers write, each through a spool of its own."""

import hashlib
import logging
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

from policybridge_core.errors import InvalidError, PolicyBridgeError, UnavailableError, UnknownError
from policybridge_server.ledger.contract import Bounds
from policybridge_server.ledger.failures import refusal
from policybridge_server.ledger.place import DatabaseUrl
from policybridge_server.ledger.postgres.connection import RefusedError
from policybridge_server.ledger.postgres.drain import Drain
from policybridge_server.ledger.postgres.reader import PostgresReader, PostgresSummary
from policybridge_server.ledger.postgres.sender import Sender
from policybridge_server.ledger.records import Begun, Record, Resumed, Segment
from policybridge_server.ledger.rows import EndRow, LostRow, OutcomeRow, Packer, Row, SessionRow
from policybridge_server.ledger.spool import Batch, left_spools, open_spool

_LOG = logging.getLogger(__name__)

_KNOWN: Final = 100_000
"""Limit of remembered sessions that began here."""


class PostgresStore:
    """Writes the spool, and drains it into the database; implements `Store` and `Spooling`.

    Args:
        url: of the database.
        bounds: beyond which sessions are dropped.
        folder: of the spools.

    Raises:
        InvalidError: the URL cannot be read.
        UnavailableError: the database refuses us, or the spool cannot be used. A database that is away is no error.

    """

    def __init__(self, url: DatabaseUrl, bounds: Bounds, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._bounds = bounds
        self._clock = bounds.clock
        # Spools of different databases may share a folder.
        self._name = hashlib.sha256(str(url).encode()).hexdigest()[:12]
        self._packer = Packer()
        self._begun = OrderedDict[str, int]()
        self._spool = open_spool(folder, self._name)
        self._drain = Drain(url, self._spool, bounds, self._drain_left)
        try:
            self._connect()
            self._spool.begin(self._clock.now().wall)
        except BaseException:
            self._spool.close()
            raise
        self._drain.start()

    def _connect(self) -> None:
        try:
            self._drain.connect()
        except (RefusedError, InvalidError):
            raise
        except UnavailableError:
            # The drain tries again at once, and logs the failure.
            self._drain.away = True

    @property
    def spooled_bytes(self) -> int:
        """Bytes that wait in the spool."""
        return self._spool.waiting_bytes

    @property
    def away(self) -> bool:
        """Whether the database is away, or too slow."""
        return self._drain.away

    def write(self, records: Sequence[Record]) -> Mapping[int, PolicyBridgeError]:
        """Write all ``records`` into the spool, and wait for the database if one is to be acknowledged."""
        rows, refused = _packed(self._packer, records)
        number = self._spool.append(rows)
        self._note(rows)
        self._drain.wake()
        if any(isinstance(row, EndRow | OutcomeRow) for row in rows):
            told = self._drain.wait(number)
            refused |= self._own_refusals(rows) if told is None else told
        return refused

    def _note(self, rows: Sequence[Row]) -> None:
        for row in rows:
            if isinstance(row, SessionRow):
                self._begun[row.session] = 0
            elif isinstance(row, LostRow) and row.session in self._begun:
                self._begun[row.session] += row.count
        while len(self._begun) > _KNOWN:
            self._begun.popitem(last=False)

    def _own_refusals(self, rows: Sequence[Row]) -> dict[int, PolicyBridgeError]:
        """Return the records that cannot be acknowledged while the database is away."""
        refused: dict[int, PolicyBridgeError] = {}
        for position, row in enumerate(rows):
            if isinstance(row, EndRow | OutcomeRow):
                known = row.session in self._begun
                error = refusal(row.session, self._begun[row.session]) if known else _not_known(row.session)
                if error is not None:
                    refused[position] = error
        return refused

    def resume(self, resumed: Resumed) -> int:
        """Open a session again, or begin it; see `Resuming`. The database alone knows it, so it must be there."""
        told = None if self._drain.away else self._drain.wait(self._spool.last)
        if told is None:
            raise _not_known(resumed.session.id)
        with closing(Sender(self._url, self._bounds, self._spool.writer)) as sender:
            held = sender.resume(self._spool.writer, resumed.session)
        if held is None:
            self.write([Begun(resumed.session, resumed.when)])
        return held or 0

    def prune(self) -> None:
        """Do nothing: the drain prunes when nothing waits."""

    def _drain_left(self, drain: Drain) -> None:
        """Send the records of ended servers."""
        for spool in left_spools(self._folder, self._name):
            _LOG.warning("the spool %s of an ended server is drained", spool.file)
            spool.begin(self._clock.now().wall)
            while drain.drain_some(spool):
                pass

    def close(self) -> None:
        """Send as much as possible, and close everything."""
        self._drain.close()
        self._spool.close()


class DirectStore:
    """Writes the database without a spool; implements `Store`. While the database is away, nothing is written.

    Args:
        url: of the database; it is connected to when that is needed.
        bounds: beyond which sessions are dropped.

    Raises:
        InvalidError: the URL cannot be read.
        UnavailableError: from any method, the database is away, or it refuses us.

    """

    def __init__(self, url: DatabaseUrl, bounds: Bounds) -> None:
        self._url = url
        self._bounds = bounds
        self._writer = uuid4().hex
        self._packer = Packer()
        self._batches = 0
        self._sender: Sender | None = None

    @contextmanager
    def _connected(self) -> Iterator[Sender]:
        if self._sender is None:
            self._sender = Sender(self._url, self._bounds, self._writer)
        try:
            yield self._sender
        except UnavailableError:
            # The next call connects again.
            self.close()
            raise

    def write(self, records: Sequence[Record]) -> Mapping[int, PolicyBridgeError]:
        """Write all ``records`` in one transaction."""
        rows, refused = _packed(self._packer, records)
        self._batches += 1
        with self._connected() as sender:
            told = sender.send([Batch.of(self._batches, self._writer, rows)])
        return refused | told.get(self._batches, {})

    def resume(self, resumed: Resumed) -> int:
        """Open a session again, or begin it; see `Resuming`."""
        with self._connected() as sender:
            held = sender.resume(self._writer, resumed.session)
        if held is None:
            self.write([Begun(resumed.session, resumed.when)])
        return held or 0

    def interrupt(self, mark: str) -> None:
        """Mark the open sessions as interrupted whose ids end with ``mark``, because their process has ended."""
        with self._connected() as sender:
            sender.interrupt(mark, self._bounds.clock.now().wall)

    def prune(self) -> bool:
        """Drop some of the sessions beyond the bounds."""
        with self._connected() as sender:
            return sender.prune()

    def close(self) -> None:
        """Close the connection."""
        if self._sender is not None:
            self._sender.close()
            self._sender = None


class PostgresLedger:
    """The kind `postgresql`; see `Ledger`."""

    open_reader = PostgresReader
    open_summary = PostgresSummary

    def open_store(self, place: DatabaseUrl, bounds: Bounds) -> PostgresStore | DirectStore:
        """Open the database for writing, through a spool if the bounds have one."""
        return DirectStore(place, bounds) if bounds.spool is None else PostgresStore(place, bounds, bounds.spool)

    # Each process of a server is a server of its own here: it takes a spool of its own.
    join_store = open_store


def _packed(packer: Packer, records: Sequence[Record]) -> tuple[list[Row], dict[int, PolicyBridgeError]]:
    """Return the rows of all records; one that cannot be packed does not affect the others."""
    rows: list[Row] = []
    refused: dict[int, PolicyBridgeError] = {}
    for position, record in enumerate(records):
        try:
            row = packer.pack(record)
        except Exception as error:
            _LOG.exception("a record cannot be written to the ledger")
            refused[position] = UnknownError(f"the ledger failed: {error!r}")
            lost = len(record.decisions) if isinstance(record, Segment) else 0
            row = LostRow(getattr(record, "session_id", ""), lost)
        rows.append(row)
    return rows, refused


def _not_known(session_id: str) -> UnavailableError:
    return UnavailableError(
        f"the database of the ledger is away, and only it knows the session {session_id!r}; report the outcome again "
        "later"
    )
