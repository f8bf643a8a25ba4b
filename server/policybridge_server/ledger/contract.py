"""The contract of a kind of ledger, and the table of the kinds."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from policybridge_core.errors import PolicyBridgeError
from policybridge_core.plugins import Table
from policybridge_server.ledger.query import Query, SessionRecord
from policybridge_server.ledger.records import Record
from policybridge_server.ledger.trajectory import DecisionBatch


@dataclass(frozen=True)
class Bounds:
    """How large a ledger may grow; the oldest sessions that are over are dropped first. ``None``: no bound.

    Attributes:
        bytes: of the ledger's file.
        age: seconds since a session began.

    """

    bytes: int | None = None
    age: float | None = None


class Store(Protocol):
    """Writes a ledger. Used by one thread."""

    def write(self, records: Sequence[Record]) -> Mapping[int, PolicyBridgeError]:
        """Write all ``records``, or none of them; after the return they survive the process.

        Returns:
            Position in ``records`` → why that `Reported` cannot be acknowledged: there is no such session, or some of
            its decisions were lost.

        Raises:
            UnavailableError: nothing could be written.

        """

    def prune(self) -> None:
        """Drop what exceeds the bounds.

        Raises:
            UnavailableError: nothing could be written.

        """

    def close(self) -> None:
        """Close the files."""


class Reader(Protocol):
    """Reads a ledger, also while a server writes it. Used by one thread.

    Raises:
        UnavailableError: from any method, the ledger cannot be read.
        InvalidError: from any method, the ledger is damaged.

    """

    def sessions(self, query: Query) -> Iterator[SessionRecord]:
        """Give the sessions that ``query`` describes, the oldest first."""

    def segments(self, session: SessionRecord) -> Iterator[DecisionBatch]:
        """Give a session's decisions in their order, in batches of any size, each with one signature and context."""

    def close(self) -> None:
        """Close the files."""


class Ledger(Protocol):
    """A kind of ledger."""

    def open_store(self, path: Path, bounds: Bounds) -> Store:
        """Open the ledger at ``path`` for writing, or make a new one.

        Raises:
            UnavailableError: it cannot be written, or another server writes it.

        """

    def open_reader(self, path: Path) -> Reader:
        """Open the ledger at ``path`` for reading.

        Raises:
            UnavailableError: there is none, or it cannot be read.

        """


LEDGERS = Table(
    kind="ledger store",
    group="policybridge.ledgers",
    own={"sqlite": "policybridge_server.ledger.sqlite:SqliteLedger [server]"},
)


def load_ledger(name: str) -> Ledger:
    """Make the kind of ledger called ``name``.

    Raises:
        NotFoundError: there is no such kind; the message lists the kinds there are.

    """
    return cast("type[Ledger]", LEDGERS.load(name))()
