"""The spool: rows that wait on this machine's disk for a database elsewhere. One SQLite file for each server."""

import fcntl
import os
import sqlite3
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Final

from policybridge_core.errors import UnavailableError
from policybridge_server.ledger.failures import mapped
from policybridge_server.ledger.place import DatabaseUrl, Place
from policybridge_server.ledger.privacy import PRIVATE, check_private, make_private
from policybridge_server.ledger.rows import InterruptedRow, Row, decode, encode

_CREATE: Final = """
PRAGMA auto_vacuum = INCREMENTAL;
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA journal_size_limit = 16777216;
-- Numbers grow and are never used again, so that a batch that the database has taken already can be told.
CREATE TABLE IF NOT EXISTS batches (
  number INTEGER PRIMARY KEY AUTOINCREMENT, writer TEXT NOT NULL, rows BLOB NOT NULL
);
-- The servers that wrote this spool, and that may have left sessions open.
CREATE TABLE IF NOT EXISTS writers (id TEXT PRIMARY KEY);
"""

_LARGE: Final = 16 << 20
"""Bytes of an empty file beyond which its pages are returned to the file system."""


def default_spool() -> Path:
    """Return the default folder of the spools: in the state folder of systemd's service, or of the user.

    Raises:
        UnavailableError: the user has no home.

    """
    service, user = os.environ.get("STATE_DIRECTORY"), os.environ.get("XDG_STATE_HOME")
    if service:
        return Path(service.split(":")[0]) / "spool"
    try:
        state = Path(user) if user else Path("~/.local/state").expanduser()
    except RuntimeError as error:
        raise UnavailableError(
            "this user has no home for the ledger's spool; name a folder by --ledger-spool DIR"
        ) from error
    return state / "policybridge" / "spool"


def spool_of(place: Place, folder: Path | None) -> Path | None:
    """Give the folder of a ledger's spool: ``folder``, or the default; ``None``: the ledger has no spool.

    Raises:
        UnavailableError: ``folder`` is ``None``, and there is no default folder.

    """
    return (folder or default_spool()) if isinstance(place, DatabaseUrl) else None


@dataclass(frozen=True)
class Batch:
    """Rows that were written together.

    Attributes:
        number: the batch's number in the spool; a later batch has a larger one.
        writer: the id of the server that wrote the rows. Number and writer together identify the batch in any database.
        rows: the rows in the encoding of `encode`.

    """

    number: int
    writer: str
    rows: bytes

    @classmethod
    def of(cls, number: int, writer: str, rows: Sequence[Row]) -> "Batch":
        """Make the batch of ``rows``."""
        return cls(number, writer, encode(rows))

    def decoded(self) -> list[Row]:
        """Give the rows."""
        return decode(self.rows)


class Spool:
    """One file of waiting batches. Used by any thread.

    A server that opens the file of a killed server sends that file's records under the killed server's id.

    Args:
        file: the file, which no other server has open.
        lock: the descriptor of its lock; it is closed with the spool.

    Raises:
        UnavailableError: from any method, the file cannot be used.

    """

    def __init__(self, file: Path, lock: int) -> None:
        self.file = file
        self._lock = lock
        self._mutex = threading.Lock()
        self.writer = uuid.uuid4().hex
        with mapped(file):
            check_private(file)
            if not file.exists():
                make_private(file)
            self._database = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
            self._database.executescript(_CREATE)
        (self.waiting_bytes,) = self._run("SELECT coalesce(sum(length(rows)), 0) FROM batches")[0]
        (last,) = self._run("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'batches'")[0]
        self.last = int(last)
        """The number of the newest batch."""

    def _run(self, statement: str, *values: object) -> list[tuple[int, ...]]:
        with self._mutex, mapped(self.file):
            return self._database.execute(statement, values).fetchall()

    def begin(self, when: float) -> None:
        """Record that the earlier writers of this spool have ended, and that this one writes it now."""
        with self._transaction():
            before = [writer for (writer,) in self._database.execute("SELECT id FROM writers")]
            if before:
                self._add([InterruptedRow(writer, when) for writer in before])
            self._database.execute("DELETE FROM writers")
            self._database.execute("INSERT INTO writers VALUES (?)", (self.writer,))

    def append(self, rows: Sequence[Row]) -> int:
        """Add a batch; give its number. Once this returns, the batch survives the end of the process."""
        with self._transaction():
            return self._add(rows)

    def _add(self, rows: Sequence[Row]) -> int:
        data = encode(rows)
        added = self._database.execute("INSERT INTO batches (writer, rows) VALUES (?, ?)", (self.writer, data))
        self.waiting_bytes += len(data)
        self.last = int(added.lastrowid or 0)
        return self.last

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._mutex, mapped(self.file):
            bytes_before, last = self.waiting_bytes, self.last
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._database.execute("COMMIT")
            except BaseException:
                self.waiting_bytes, self.last = bytes_before, last
                with suppress(sqlite3.Error):
                    self._database.execute("ROLLBACK")
                raise

    def oldest(self, size: int) -> list[Batch]:
        """Give the oldest batches of one writer: at least one if there is any, then more up to ``size`` bytes."""
        batches: list[Batch] = []
        with self._mutex, mapped(self.file):
            for row in self._database.execute("SELECT number, writer, rows FROM batches ORDER BY number"):
                batch = Batch(*row)
                size -= len(batch.rows)
                if batches and (size < 0 or batch.writer != batches[0].writer):
                    break
                batches.append(batch)
        return batches

    def remove(self, last: int) -> None:
        """Remove the batches up to number ``last``, which are in the database."""
        with self._transaction():
            gone = self._database.execute(
                "SELECT coalesce(sum(length(rows)), 0) FROM batches WHERE number <= ?", (last,)
            )
            self.waiting_bytes -= int(gone.fetchone()[0])
            self._database.execute("DELETE FROM batches WHERE number <= ?", (last,))
        if not self.waiting_bytes and self.file.stat().st_size > _LARGE:
            with self._mutex, mapped(self.file):
                self._database.executescript("PRAGMA incremental_vacuum")

    def close(self) -> None:
        """Close the file."""
        with self._mutex:
            self._database.close()
            os.close(self._lock)


def open_spool(folder: Path, name: str) -> Spool:
    """Open the first spool of ``name`` that no other server has locked; make the folder if it is missing.

    Raises:
        UnavailableError: the folder cannot be used; the message names the option for another folder.

    """
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for number in count():
            file = folder / f"{name}-{number}.db"
            lock = _locked(file)
            if lock is not None:
                return _opened(file, lock)
    except (OSError, UnavailableError) as error:
        raise UnavailableError(
            f"the spool of the ledger in {folder} cannot be used: {error}; name another folder by --ledger-spool DIR"
        ) from error
    raise AssertionError("a count ends")


def left_spools(folder: Path, name: str) -> Iterator[Spool]:
    """Open the unlocked spools of ``name`` with waiting rows, one after the other.

    Raises:
        UnavailableError: a spool cannot be used.

    """
    for file in sorted(folder.glob(f"{name}-*.db")):
        with mapped(file):
            lock = _locked(file)
        if lock is None:
            continue
        spool = _opened(file, lock)
        try:
            if spool.waiting_bytes:
                yield spool
        finally:
            spool.close()


def _opened(file: Path, lock: int) -> Spool:
    try:
        return Spool(file, lock)
    except BaseException:
        os.close(lock)
        raise


def _locked(file: Path) -> int | None:
    """Lock a spool, and return the lock's descriptor; ``None``: another server holds the lock."""
    descriptor = os.open(
        file.with_name(f"{file.name}-lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, PRIVATE
    )
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
