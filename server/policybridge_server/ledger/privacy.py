"""The files of a ledger are for the server's user alone, because observations reveal the sources."""

import os
import pwd
import stat
from pathlib import Path
from typing import Final

from policybridge_core.errors import UnavailableError

_PARTS: Final = ("", "-wal", "-shm", "-journal", "-lock")
"""The files beside a ledger are part of it: SQLite applies their changes."""

PRIVATE: Final = 0o600


def make_private(path: Path) -> None:
    """Make an empty file for the server's user alone; SQLite gives the files beside it the same mode.

    Raises:
        FileExistsError: there is something already.

    """
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE))


def check_private(path: Path) -> None:
    """Check that no other user has put a ledger, or a file beside it, there.

    Raises:
        UnavailableError: one has, or everybody may write the file.

    """
    for part in _PARTS:
        file = path.with_name(f"{path.name}{part}")
        if os.path.lexists(file):
            _check(file, file.lstat(), beside=bool(part))


def _check(file: Path, status: os.stat_result, *, beside: bool) -> None:
    if status.st_uid not in (os.geteuid(), 0):
        raise UnavailableError(
            f"the ledger cannot be written: {file} belongs to another user, {_name(status.st_uid)}: serve as that "
            "user, or name another file"
        )
    if beside and not stat.S_ISREG(status.st_mode):
        raise UnavailableError(f"the ledger cannot be written: {file} is no regular file; remove it")
    if stat.S_ISREG(status.st_mode) and status.st_mode & stat.S_IWOTH:
        raise UnavailableError(f"the ledger cannot be written: every user may write {file}: chmod o-w")


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return str(user)
