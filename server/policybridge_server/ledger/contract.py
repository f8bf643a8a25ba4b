"""The contract of a kind of ledger, and the table of the kinds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, cast, runtime_checkable

from policybridge_core.errors import InvalidError, NotFoundError, PolicyBridgeError
from policybridge_core.plugins import Table
from policybridge_server.ledger.clock import Clock, SystemClock
from policybridge_server.ledger.place import DatabaseUrl, Place
from policybridge_server.ledger.query import Query, SessionRecord
from policybridge_server.ledger.records import Record, Resumed
from policybridge_server.ledger.trajectory import DecisionBatch


@dataclass(frozen=True)
class Bounds:
    """Limits of a ledger; beyond them, the oldest ended sessions are dropped first. ``None``: no limit.

    Attributes:
        bytes: limit of the ledger's file.
        age: limit in seconds since a session began.
        clock: measures the age.
        spool: folder in which records wait while the database is away; ``None``: records do not wait.

    """

    bytes: int | None = None
    age: float | None = None
    clock: Clock = field(default_factory=SystemClock)
    spool: Path | None = None


class DroppedError(NotFoundError):
    """The session was dropped from the ledger before all of it was read."""


class Store(Protocol):
    """Writes a ledger. Used by one thread."""

    def write(self, records: Sequence[Record]) -> Mapping[int, PolicyBridgeError]:
        """Write all ``records``, or none of them. Once this returns, they survive the end of the process.

        Returns:
            Position of a `Reported` or `Ended` in ``records`` → why it cannot be acknowledged: there is no such
            session, or some of the session's decisions were lost.

        Raises:
            UnavailableError: nothing could be written.

        """

    def prune(self) -> bool | None:
        """Drop some sessions beyond the bounds, in a fraction of a second: acknowledgements wait for it.

        Returns:
            Whether there may be more to drop; then this is called again soon.

        Raises:
            UnavailableError: nothing could be written.

        """

    def close(self) -> None:
        """Close the files."""


@runtime_checkable
class Resuming(Protocol):
    """A `Store` in which a session can go on whose server was killed. Used by the writer's thread."""

    def resume(self, resumed: Resumed) -> int:
        """Open the session again, or begin it if it is not there; return the number of decisions that are there.

        Raises:
            UnavailableError: the session still runs, or nothing can be written.
            PreconditionError: another version decided in it.
            PermissionDeniedError: it is another client's.
            TooLargeError: some of its decisions were lost.

        """


@runtime_checkable
class Spooling(Protocol):
    """A `Store` whose records may wait on disk for a database that is away. Read by any thread."""

    @property
    def spooled_bytes(self) -> int:
        """Bytes of the records that wait on disk."""

    @property
    def away(self) -> bool:
        """Whether the database is away, or too slow."""


class Reader(Protocol):
    """Reads a ledger, also while a server writes it. Used by one thread.

    Raises:
        UnavailableError: from any method, the ledger cannot be read.
        InvalidError: from any method, the ledger is damaged.

    """

    def sessions(self, query: Query) -> Iterator[SessionRecord]:
        """Give the sessions that ``query`` selects, the oldest first."""

    def segments(self, session: SessionRecord) -> Iterator[DecisionBatch]:
        """Give a session's decisions in their order, in batches of any size, each with one signature and context.

        Raises:
            DroppedError: the session was dropped before all of its decisions were returned.

        """

    def context_outcomes(self, session: SessionRecord) -> Mapping[str, Mapping[str, float]]:
        """Give the reported numbers by context, then by name; see `LedgerReader.context_outcomes`."""

    def close(self) -> None:
        """Close the files."""


class Ledger(Protocol):
    """A kind of ledger."""

    def open_store(self, place: Any, bounds: Bounds) -> Store:
        """Open the ledger at ``place``, a `Place`, for writing, or make a new one.

        Raises:
            UnavailableError: it cannot be written, or another server writes it.

        """

    def open_reader(self, place: Any) -> Reader:
        """Open the ledger at ``place``, a `Place`, for reading.

        Raises:
            UnavailableError: the ledger is missing, or cannot be read.

        """


class SharedStore(Store, Protocol):
    """The parent's store, if several processes of a server write one ledger: it holds the ledger, writes no records."""

    def interrupt(self, mark: str) -> None:
        """Mark each open session whose id ends with ``mark`` as interrupted, because its process has ended.

        Raises:
            UnavailableError: nothing could be written.

        """


@runtime_checkable
class SharedLedger(Protocol):
    """A kind of ledger that several processes of one server can write; the parent's store comes from `open_store`."""

    def open_store(self, place: Any, bounds: Bounds) -> SharedStore:
        """Open the ledger for the server; see `Ledger`."""

    def join_store(self, place: Any, bounds: Bounds) -> Store:
        """Open the ledger at ``place`` for one process of the server that holds it by `open_store`.

        Raises:
            UnavailableError: it cannot be written.

        """


_FILE: Final = "sqlite"
_DATABASE: Final = "postgresql"

LEDGERS = Table(
    kind="ledger store",
    group="policybridge.ledgers",
    own={
        _DATABASE: "policybridge_server.ledger.postgres.store:PostgresLedger [postgres]",
        _FILE: "policybridge_server.ledger.sqlite:SqliteLedger [server]",
    },
)
"""The kinds of ledger, by the names of ``--ledger-store``."""


def load_ledger(place: Place, kind: str | None = None) -> Ledger:
    """Make the kind of ledger called ``kind``; ``None``: the kind that fits ``place``.

    Raises:
        NotFoundError: there is no such kind; the message lists the known kinds.
        InvalidError: a ledger of this kind cannot be at ``place``.

    """
    own = _DATABASE if isinstance(place, DatabaseUrl) else _FILE
    if kind in (_DATABASE, _FILE) and kind != own:
        raise InvalidError(f"{place} is no place of a ledger of the kind {kind!r}, but of the kind {own!r}")
    return cast("type[Ledger]", LEDGERS.load(kind or own))()
