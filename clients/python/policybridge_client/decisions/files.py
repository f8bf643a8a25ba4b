"""Stores as files: read whole, replaced whole."""

import errno
import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from policybridge_client.decisions.format import format_store, parse_store
from policybridge_client.decisions.store import Store
from policybridge_client.decisions.text import read_limited
from policybridge_core.errors import NotFoundError
from policybridge_core.lacking import lacking

_FOR_ALL: Final = 0o666


def read_store(path: Path | str) -> Store:
    """Read a store.

    Raises:
        NotFoundError: there is no such file.
        InvalidError: the file cannot be read, or is no store.
        TooLargeError: it has more than 256 MiB.

    """
    try:
        data = read_limited(path, "store of decisions")
    except NotFoundError as error:
        raise NotFoundError(lacking(f"{error}; make one (policybridge autotune --store {path} -- make)")) from error
    return parse_store(data, str(path))


def write_store(store: Store, path: Path | str) -> None:
    """Replace or create a store, atomically and durably: a reader gets the old store or the new one.

    The permissions stay. If ``path`` is a symbolic link, the file that it leads to is replaced.

    Raises:
        OSError: the folder does not exist, cannot be written to, the disk is full, or ``path`` is a device or a pipe.
            The old file is untouched then.

    """
    target = Path(path).resolve()
    # rename(2) refuses to replace a folder, but not a device or a pipe.
    if target.exists() and not (target.is_file() or target.is_dir()):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    data = format_store(store)
    descriptor, name = tempfile.mkstemp(prefix=".policybridge-", dir=target.parent)
    partial = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), _mode(target))
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    _sync(target.parent)


def _mode(target: Path) -> int:
    with suppress(FileNotFoundError):
        return stat.S_IMODE(target.stat().st_mode)
    # mkstemp makes files for their owner alone. The umask can be read only by setting it.
    mask = os.umask(0o077)
    os.umask(mask)
    return _FOR_ALL & ~mask


def _sync(folder: Path) -> None:
    with suppress(OSError), _opened(folder) as descriptor:
        os.fsync(descriptor)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def update_store(path: Path | str, change: Callable[[Store], Store]) -> Store:
    """Read a store (an empty one if there is no file), change it, and replace it; return the new one.

    Several processes may do so at the same time: each waits for the one before it, by a lock of the store's folder.

    Raises:
        InvalidError: the file is no store. It is left as it is.
        OSError: as for `write_store`.

    """
    with _opened(Path(path).resolve().parent) as folder:
        fcntl.flock(folder, fcntl.LOCK_EX)
        try:
            store = read_store(path)
        except NotFoundError:
            store = Store()
        changed = change(store)
        if changed != store:
            write_store(changed, path)
        return changed


def path_in_store(source: Path | str, store: Path | str) -> str:
    """Return a source's path in a store: relative to the store's folder if it lies below, else absolute."""
    folder = Path(store).resolve().parent
    absolute = Path(source).absolute()
    for path in (Path(os.path.normpath(absolute)), absolute.resolve()):
        if path.is_relative_to(folder):
            return str(path.relative_to(folder))
    return str(absolute.resolve())
