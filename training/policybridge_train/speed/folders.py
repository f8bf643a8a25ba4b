"""Folders whose paths are of one length, each for one search."""

import fcntl
import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Final

from policybridge_core.errors import PreconditionError

_FOLDER: Final = "/tmp"  # noqa: S108 - a folder of our own is made in it; TMPDIR is as long as the user likes
_SLOTS: Final = 10_000


def take_folder() -> tuple[Path, int]:
    """Make the first free one of folders whose names are of one length; give it, and the descriptor that locks it.

    The letters of a random name would change the branches of the dynamic linker that come before ``main``, and with
    them the state of the simulated caches. The files of a killed search are taken over.

    Raises:
        OSError: none can be made.

    """
    for number in range(_SLOTS):
        path = Path(_FOLDER, f"policybridge-{number:04}")
        with suppress(FileExistsError):
            path.mkdir(mode=0o700)
        descriptor = _locked(path)
        if descriptor is not None:
            return path, descriptor
    raise PreconditionError(
        f"{_FOLDER} has {_SLOTS:,} folders policybridge-*: remove those of searches that have ended"
    )


def _locked(path: Path) -> int | None:
    """Lock a folder of this user's that no other search has, and empty it; ``None`` for another's, a file or a link."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        held = os.fstat(descriptor)
        # A search that ends removes its folder; then the lock is of none that is there.
        if held.st_uid == os.geteuid() and not held.st_mode & 0o077 and os.path.samestat(held, path.lstat()):
            for each in path.iterdir():
                shutil.rmtree(each) if each.is_dir() and not each.is_symlink() else each.unlink()
            return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None
