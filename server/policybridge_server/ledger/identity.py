"""Whether a file is a ledger; only reads, so that a foreign file stays unchanged."""

import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Final

from policybridge_core.errors import UnavailableError
from policybridge_server.ledger.failures import mapped
from policybridge_server.ledger.schema import APPLICATION, FORMAT, TABLES

_MAGIC: Final = b"SQLite format 3\0"
_HEADER: Final = 100
_APPLICATION: Final = slice(68, 72)
_WRITE_FORMAT: Final = 18
_WAL: Final = 2


def is_ledger(path: Path) -> bool:
    """Return whether there is a ledger; ``False``: there is no file yet, or an empty one.

    Raises:
        UnavailableError: there is another kind of file, which the message names; or it cannot be read.
        InvalidError: it is damaged.

    """
    with mapped(path):
        try:
            status = path.stat()
        except FileNotFoundError:
            return False
        _check_kind(path, status)
        if not status.st_size:
            return False
        with path.open("rb") as file:
            header = file.read(_HEADER)
    if len(header) < _HEADER or not header.startswith(_MAGIC):
        raise UnavailableError(f"{path} is no ledger: it is no SQLite file; name a file that is not there yet")
    application = int.from_bytes(header[_APPLICATION], "big")
    if application not in (0, APPLICATION):
        raise UnavailableError(f"{path} is no ledger: it is the SQLite file of another application")
    # To read a file in WAL mode SQLite makes two files beside it, unless the file is declared immutable.
    alone = header[_WRITE_FORMAT] == _WAL and not _log(path).exists()
    with mapped(path), closing(_connect(path, alone=alone)) as database:
        if not application:
            _check_tables(path, database)
        (number,) = database.execute("PRAGMA user_version").fetchone()
    if number != FORMAT:
        raise UnavailableError(f"the ledger {path} is of format {number}; this version of PolicyBridge uses {FORMAT}")
    return True


def _check_kind(path: Path, status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise UnavailableError(f"{path} is no ledger: it is a folder; name a file in it")
    if not stat.S_ISREG(status.st_mode):
        raise UnavailableError(f"{path} is no ledger: it is no regular file")
    if status.st_nlink > 1:
        # SQLite keeps the last writes beside one of the names, so that they are missing under the other.
        raise UnavailableError(
            f"the ledger {path} has {status.st_nlink} names (hard links); remove all but one, and use a copy or a "
            "symbolic link instead"
        )


def connect_reader(path: Path) -> sqlite3.Connection:
    """Connect to a ledger to read it; one on a read-only disk is read as immutable."""
    frozen = bool(os.statvfs(path).f_flag & os.ST_RDONLY)
    return _connect(path, alone=frozen and not _log(path).exists())


def _log(path: Path) -> Path:
    target = path.resolve()
    return target.with_name(f"{target.name}-wal")


def _connect(path: Path, *, alone: bool) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode=ro{'&immutable=1' if alone else ''}"
    return sqlite3.connect(uri, uri=True, isolation_level=None)


def _check_tables(path: Path, database: sqlite3.Connection) -> None:
    """Refuse a file without an application id, unless it has a ledger's tables."""
    for table, columns in TABLES.items():
        present = {name for (name,) in database.execute("SELECT name FROM pragma_table_info(?)", (table,))}
        if not present.issuperset(columns.split()):
            raise UnavailableError(f"{path} is no ledger: it is a SQLite file without a ledger's table {table!r}")
