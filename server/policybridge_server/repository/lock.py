"""The lock of a repository: one server may change it, and any number may read it."""

import fcntl
import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from policybridge_core.errors import PreconditionError
from policybridge_server.repository.files import remove_leftovers
from policybridge_server.repository.retired import remove_retired

_FILE: Final = ".lock"


@contextmanager
def lock_for_changes(repositories: Iterable[Path]) -> Iterator[None]:
    """Hold the lock of each folder, and remove the remains of an earlier server's crash in them.

    Raises:
        PreconditionError: another server has one of the locks, or a folder cannot be written.

    """
    with ExitStack() as stack:
        for folder in repositories:
            stack.callback(os.close, _lock(folder))
            remove_leftovers(folder)
            for policy in folder.iterdir():
                if policy.is_dir() and not policy.is_symlink():
                    remove_leftovers(policy)
                    remove_retired(policy)
        yield


def _lock(folder: Path) -> int:
    try:
        fd = os.open(folder / _FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise PreconditionError(f"cannot publish into {folder}: {error.strerror}") from error
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise PreconditionError(f"another server publishes into {folder}") from None
    return fd
