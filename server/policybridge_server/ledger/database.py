"""The SQLite file of a ledger, opened by its one writer: transactions, and SQLite's errors as ours."""

import fcntl
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from policybridge_core.errors import PolicyBridgeError, UnavailableError
from policybridge_server.ledger.schema import CREATE, FORMAT

_PAGES: Final = ("page_count", "freelist_count", "page_size")


class Database:
    """Opens the file for writing, or makes a new one; refuses a file that another server writes.

    Args:
        path: of the file; ``-wal``, ``-shm`` and ``-lock`` stand beside it.

    Raises:
        UnavailableError: from any method, it cannot be written; at opening also, another server writes it.

    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = _locked(path)
        try:
            with mapped(self._path):
                self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
                self._prepare()
        except PolicyBridgeError:
            self._lock.close()
            raise

    def _prepare(self) -> None:
        (found,) = self.run("PRAGMA user_version").fetchone()
        if found not in (0, FORMAT):
            raise UnavailableError(f"the ledger {self._path} is of format {found}; this server writes {FORMAT}")
        self.run("PRAGMA auto_vacuum = INCREMENTAL")
        self.run("PRAGMA journal_mode = WAL")
        self.run("PRAGMA synchronous = NORMAL")
        self._connection.executescript(CREATE)

    def run(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """Run one statement."""
        return self._connection.execute(statement, values)

    def run_for_each(self, statement: str, rows: Sequence[Any]) -> None:
        """Run one statement with the values of each row."""
        self._connection.executemany(statement, rows)

    def used(self) -> int:
        """Give the bytes of the file that are in use."""
        (pages,), (free,), (size,) = (self.run(f"PRAGMA {name}").fetchone() for name in _PAGES)
        return int((pages - free) * size)

    def shrink(self) -> None:
        """Give the free bytes back to the file system."""
        # `execute` would free one page only.
        self._connection.executescript("PRAGMA incremental_vacuum")

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all statements of the block, or none of them."""
        with mapped(self._path):
            self.run("BEGIN IMMEDIATE")
            try:
                yield
                self.run("COMMIT")
            except BaseException:
                if self._connection.in_transaction:
                    self.run("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the file; then another server may write it."""
        self._connection.close()
        self._lock.close()


@contextmanager
def mapped(path: Path) -> Iterator[None]:
    """Raise SQLite's errors about the ledger at ``path`` as `UnavailableError`."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise UnavailableError(f"the ledger {path} cannot be used: {error}") from error


def _locked(path: Path) -> IO[str]:
    try:
        file = path.with_name(f"{path.name}-lock").open("w")
    except OSError as error:
        raise UnavailableError(f"the ledger {path} cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise UnavailableError(f"another server writes the ledger {path}") from None
    return file
