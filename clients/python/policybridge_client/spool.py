"""Records that no server has acknowledged: files of this user, sent by the next client that reaches their server.

The clients in C++ share the folder, ``policybridge/spool`` in the user's cache folder.
"""

import fcntl
import hashlib
import logging
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from time import monotonic, time
from typing import Final

from policybridge_client.form_cache import own_folder
from policybridge_client.record import MOST_RECORD, Record
from policybridge_core.errors import DeadlineError, PolicyBridgeError, UnavailableError
from policybridge_serdes.interactive import end_line

_LOG = logging.getLogger(__name__)

_BYTES: Final = 64 << 20
_FILES: Final = 256
_AGE: Final = 7 * 86400.0
"""Bytes, files and seconds that the folder keeps; the oldest go first."""

_LOOKED_AT: Final = 4096
"""Entries of the folder that a client looks at."""

_SENT: Final = 32
_SENT_BYTES: Final = 16 << 20
_SECONDS: Final = 0.25
"""Records and bytes that a client sends at its end, and the time after which it begins no other."""

SPOOL: Final = "POLICYBRIDGE_SPOOL"
"""The environment variable that switches it off by ``0``."""

PATIENCE: Final = 1.0
"""Seconds that a client waits for the answer to a record, at most."""

_NAME: Final = re.compile("[0-9a-f]{16}-[0-9a-f]{32}")


@dataclass
class SpoolCounts:
    """What a client did with records.

    Attributes:
        kept: put into the spool.
        sent: acknowledged by their server, and removed.
        refused: refused by their server for good, and removed.

    """

    kept: int = 0
    sent: int = 0
    refused: int = 0


class Spool:
    """The folder. Nothing is kept, and nothing sent, where it is not this user's alone.

    Attributes:
        counts: what became of records by this object.

    """

    def __init__(self) -> None:
        self.counts = SpoolCounts()

    def keep(self, server: str, record: Record) -> bool:
        """Keep a record for a server; return whether it is kept."""
        folder = _folder()
        name = f"{_digest(server)}-{record.session}"
        if folder is None or record.given_up or _NAME.fullmatch(name) is None:
            return False
        beside = folder / f".{name}.{os.getpid()}"
        try:
            opened = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            with os.fdopen(opened, "wb") as file:
                file.write(record.whole())
            # Renamed: another client must not send half of it.
            beside.replace(folder / name)
        except OSError:
            with suppress(OSError):
                beside.unlink()
            return False
        _trim(folder)
        self.counts.kept += 1
        return True

    def send(self, server: str, send: Callable[[bytes], None]) -> None:
        """Send the records for a server, the oldest first, within small bounds.

        Args:
            server: the server's address.
            send: sends one; raises the reason why it is not acknowledged.

        """
        counts, end, left = self.counts, monotonic() + _SECONDS, _SENT_BYTES
        folder = _folder()
        if folder is None:
            return
        ours = f"{_digest(server)}-"
        names = [name for _, _, name in _files(folder) if name.startswith(ours) and _NAME.fullmatch(name)]
        for name in names[:_SENT]:
            if monotonic() > end or left < 0:
                break
            with _taken(folder / name) as file:
                if file is None:
                    continue
                left -= len(file.data)
                try:
                    counts.sent += file.send(send)
                except DeadlineError:
                    break
                except UnavailableError:
                    continue
                except PolicyBridgeError as error:
                    counts.refused += 1
                    _LOG.warning("the record %s is dropped, because the server refuses it: %s", name, error)


class _Taken:
    """A record that no other client sends meanwhile."""

    def __init__(self, file: Path, data: bytes) -> None:
        self._file = file
        self.data = data

    def send(self, send: Callable[[bytes], None]) -> bool:
        """Send it, and remove it unless its server may take it later; return whether it was whole."""
        whole = self.data.endswith(end_line())
        try:
            if whole:
                send(self.data)
        except (UnavailableError, DeadlineError):
            raise
        except PolicyBridgeError:
            self._file.unlink(missing_ok=True)
            raise
        # Half a record, of a machine that went down, is of no use.
        self._file.unlink(missing_ok=True)
        return whole


@contextmanager
def _taken(file: Path) -> Iterator[_Taken | None]:
    """Lock a record, and read it; ``None``: it is no record of this user, or another client sends it."""
    try:
        opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    with os.fdopen(opened, "rb") as content:
        yield _Taken(file, content.read()) if _is_record(opened) else None


def _is_record(opened: int) -> bool:
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    about = os.fstat(opened)
    # Its name is gone if another client has sent it before we locked it.
    is_own = stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid() and about.st_nlink == 1
    return is_own and about.st_size <= MOST_RECORD + len(end_line())


def _folder() -> Path | None:
    return None if os.environ.get(SPOOL) == "0" else own_folder("spool")


def _digest(server: str) -> str:
    return hashlib.sha256(server.encode(errors="surrogateescape")).hexdigest()[:16]


def _files(folder: Path) -> list[tuple[float, int, str]]:
    """Give time, size and name of the files, the oldest first."""
    found: list[tuple[float, int, str]] = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in islice(entries, _LOOKED_AT):
            with suppress(OSError):
                about = entry.stat(follow_symlinks=False)
                if not stat.S_ISDIR(about.st_mode):
                    found.append((about.st_mtime, about.st_size, entry.name))
    return sorted(found)


def _trim(folder: Path) -> None:
    """Remove the oldest files until the folder is within its bounds."""
    files, oldest = _files(folder), time() - _AGE
    count, size = len(files), sum(size for _, size, _ in files)
    for changed, each, name in files:
        if count <= _FILES and size <= _BYTES and changed >= oldest:
            return
        with suppress(OSError):
            (folder / name).unlink()
        count, size = count - 1, size - each
