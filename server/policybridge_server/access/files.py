"""Files with secrets, and files that are read again when they change."""

import stat
import time
from collections.abc import Sequence
from pathlib import Path

from policybridge_core.errors import InvalidError


class WatchedFiles:
    """Notices that files were replaced or written, when it is asked: nothing runs in between.

    Args:
        paths: paths of the files; symbolic links are followed.
        pause: the least seconds between two looks, because a look takes some microseconds.

    """

    def __init__(self, paths: Sequence[Path], pause: float = 0.0) -> None:
        self._paths = paths
        self._pause = pause
        self._looked = time.monotonic()
        self._seen = self._now()

    def changed(self) -> bool:
        """Whether a file has changed since the last look."""
        time_now = time.monotonic()
        if time_now < self._looked + self._pause:
            return False
        self._looked = time_now
        now = self._now()
        changed, self._seen = now != self._seen, now
        return changed

    def _now(self) -> list[tuple[int, ...] | None]:
        return [_identity(path) for path in self._paths]


def _identity(path: Path) -> tuple[int, ...] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size, status.st_mode


def check_secret(path: Path, what: str) -> None:
    """Check that a file with secrets is not open to every user of the machine; its group may read it.

    Raises:
        InvalidError: it cannot be read, others may read it, or other users than its owner may write it.

    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError as error:
        raise InvalidError(f"{what} {path} cannot be read: {error.strerror}") from error
    if mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise InvalidError(f"{what} {path} has the mode {mode:04o}, so that others can use it: chmod 600 {path}")
