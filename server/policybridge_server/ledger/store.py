"""The contract of a ledger's store, and the table of those that there are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from policybridge_core.errors import PolicyBridgeError
from policybridge_core.plugins import Table
from policybridge_server.ledger.records import Record


@dataclass(frozen=True)
class Bounds:
    """How much is kept; the oldest sessions that are over go first. ``None``: as much as there is room for.

    Attributes:
        bytes: of the store's file.
        age: seconds since a session began.

    """

    bytes: int | None = None
    age: float | None = None


class Store(Protocol):
    """Keeps records. Used by one thread."""

    def write(self, records: Sequence[Record]) -> Mapping[int, PolicyBridgeError]:
        """Keep all ``records`` at once, or none; on return they survive the process.

        Returns:
            By its position, why a `Reported` cannot be acknowledged: there is no such session, or decisions of it
            were lost.

        Raises:
            UnavailableError: nothing could be written.

        """
        ...

    def prune(self) -> None:
        """Drop what is beyond the bounds.

        Raises:
            UnavailableError: nothing could be written.

        """
        ...

    def close(self) -> None:
        """Give the files back."""
        ...


STORES = Table(
    kind="ledger store",
    group="policybridge.ledgers",
    own={"sqlite": "policybridge_server.ledger.sqlite:SqliteStore [server]"},
)


class _Made(Store, Protocol):
    def __init__(self, path: Path, bounds: Bounds) -> None: ...


def open_store(name: str, path: Path, bounds: Bounds) -> Store:
    """Open the store of the kind ``name``, a new one where there is none.

    Raises:
        NotFoundError: there is no such kind.
        UnavailableError: it cannot be written, or another server writes it.

    """
    return cast("type[_Made]", STORES.load(name))(path, bounds)
