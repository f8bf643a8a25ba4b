"""The SQLite file of a ledger, opened by its one writer."""

import errno
import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from policybridge_core.errors import UnavailableError
from policybridge_server.ledger.failures import mapped
from policybridge_server.ledger.identity import is_ledger
from policybridge_server.ledger.privacy import PRIVATE, check_private, make_private
from policybridge_server.ledger.schema import CREATE

_BUSY: Final = 5.0
"""Seconds to wait for another program that holds the file locked."""

_LOG_PAGES: Final = 4000
"""Pages in the write-ahead log, 16 MiB, at which SQLite moves it into the file; a small ledger has a lower number.

At fewer it moves the pages more often that each session changes.
"""

_FEWEST_LOG_PAGES: Final = 64
_LOG_BYTES: Final = 16 << 20
"""Bytes to which SQLite cuts the log after it has moved all of it. The log grows beyond this during a long read."""


class Database:
    """Opens the file for writing, or makes a new one. Refuses a file that another server writes, even by another name.

    Args:
        path: path of the file; ``-wal``, ``-shm`` and ``-lock`` are beside it, or beside the target of a link.
        most: the intended limit of the file in bytes; ``None``: no limit.
        joins: whether another process of this server holds the locks; then this one takes none.

    Raises:
        UnavailableError: from any method: the file cannot be written. From the constructor also: another server writes
            the file, the file is no ledger, or another user has put it there.
        InvalidError: from any method: the file is damaged.

    """

    def __init__(self, path: Path, most: int | None = None, *, joins: bool = False) -> None:
        self._path = path
        with mapped(path):
            target = path.resolve()
        check_private(target)
        is_ledger(target)
        self._locks: _NoLocks | _Locks = _NoLocks() if joins else _Locks(path, target)
        try:
            with mapped(path):
                self._open(target, most)
        except BaseException:
            self._locks.close()
            raise

    def _open(self, target: Path, most: int | None) -> None:
        if not is_ledger(target):
            _create(target)
        self._locks.add(target)
        self._file, self._is = target, _identity(target)
        self._log = target.with_name(f"{target.name}-wal")
        self._connection = sqlite3.connect(target, _BUSY, isolation_level=None, check_same_thread=False)
        try:
            self._prepare(most)
        except BaseException:
            self._connection.close()
            raise

    def _prepare(self, most: int | None) -> None:
        self.run("PRAGMA journal_mode = WAL")
        self.run("PRAGMA synchronous = NORMAL")
        self.run(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
        (size,) = self.run("PRAGMA page_size").fetchone()
        pages = _LOG_PAGES if most is None else most // 4 // size
        self.run(f"PRAGMA wal_autocheckpoint = {max(_FEWEST_LOG_PAGES, min(pages, _LOG_PAGES))}")
        # Adds tables that ledgers of earlier versions lack.
        self._connection.executescript(CREATE)

    def run(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """Run one statement."""
        return self._connection.execute(statement, values)

    def run_for_each(self, statement: str, rows: Sequence[Any]) -> None:
        """Run one statement with the values of each row."""
        self._connection.executemany(statement, rows)

    def fill(self, table: str, column: str, row: int, pieces: Iterable[bytes]) -> None:
        """Write ``pieces`` into a column that has as many zeros."""
        with self._connection.blobopen(table, column, row) as blob:
            for piece in pieces:
                blob.write(piece)

    def number(self, statement: str, *values: Any) -> int:
        """Run a statement whose result is one number; give the number."""
        (found,) = self.run(statement, *values).fetchone()
        return int(found)

    def size(self) -> tuple[int, int]:
        """Return the used bytes and the free bytes of the file."""
        free, each = self.number("PRAGMA freelist_count"), self.number("PRAGMA page_size")
        return (self.number("PRAGMA page_count") - free) * each, free * each

    def log_size(self) -> int:
        """Give the bytes of the write-ahead log."""
        with suppress(OSError):
            return self._log.stat().st_size
        return 0

    def empty_log(self) -> None:
        """Move as much of the log into the file as SQLite can without waiting for readers."""
        with suppress(sqlite3.Error):
            self.run("PRAGMA wal_checkpoint(PASSIVE)")

    def shrink(self, pages: int) -> None:
        """Return up to ``pages`` free pages to the file system."""
        # `execute` would free one page only.
        self._connection.executescript(f"PRAGMA incremental_vacuum({pages})")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all statements of the block, or none of them."""
        with mapped(self._path):
            self.run("BEGIN IMMEDIATE")
            try:
                yield
                self._check_place()
                self.run("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self.run("ROLLBACK")
                raise

    def _check_place(self) -> None:
        # SQLite keeps writing to a file that was removed or renamed; no reader would find the acknowledged records.
        if _identity(self._file) != self._is:
            raise UnavailableError(
                f"the ledger {self._path} was removed, renamed or replaced while it is written; put the file back "
                "with those beside it, or restart the server"
            )

    def close(self) -> None:
        """Close the file; then another server may write it."""
        # Release the locks last: closing their descriptor drops all POSIX locks of this process on the file, SQLite's
        # among them.
        self._connection.close()
        self._locks.close()


def _identity(file: Path) -> tuple[int, int] | None:
    """Return the device and inode of a file, which do not depend on its name; ``None`` if there is no file."""
    try:
        status = file.stat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino


class _NoLocks:
    """No locks: the server's parent process holds them."""

    def add(self, file: Path) -> None: ...

    def close(self) -> None: ...


class _Locks:
    """Two locks of a writer.

    One is for the name, from which SQLite derives the log's; the other for the file, which may have several names.
    """

    def __init__(self, path: Path, target: Path) -> None:
        self._path = path
        self._descriptors: list[int] = []
        self.add(target.with_name(f"{target.name}-lock"), os.O_CREAT)

    def add(self, file: Path, flags: int = 0) -> None:
        try:
            descriptor = os.open(file, os.O_RDWR | os.O_CLOEXEC | flags, PRIVATE)
        except OSError as error:
            raise UnavailableError(f"the ledger {self._path} cannot be written: {error.strerror}") from error
        self._descriptors.append(descriptor)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise UnavailableError(f"another server writes the ledger {self._path}") from None

    def close(self) -> None:
        while self._descriptors:
            os.close(self._descriptors.pop())


def _create(path: Path) -> None:
    """Make an empty ledger under another name, then rename it: the process may be killed at any moment."""
    new = path.with_name(f"{path.name}-new")
    # Remove the companions of a deleted ledger; SQLite would read them as parts of the new one.
    for suffix in ("-new", "-new-journal", "-new-wal", "-new-shm", "-journal", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    try:
        _create_tables(new)
        if path.exists():
            new.chmod(path.stat().st_mode & 0o7777)
        new.replace(path)
    except BaseException as error:
        new.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno == errno.EBUSY:
            raise UnavailableError(
                f"the ledger {path} cannot be made where the file alone is mounted; mount its folder"
            ) from error
        raise


def _create_tables(new: Path) -> None:
    make_private(new)
    with closing(sqlite3.connect(new, isolation_level=None)) as database:
        database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        database.executescript(f"BEGIN;{CREATE}COMMIT;")
        database.execute("PRAGMA journal_mode = WAL")
