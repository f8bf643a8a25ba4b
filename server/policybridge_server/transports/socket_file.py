"""Binding and removing the file of a Unix socket."""

import errno
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path

from policybridge_core.errors import UnavailableError
from policybridge_server.systemd import given_socket


class SocketFile:
    """The file of a socket that this process, or a library in it, has bound just now.

    Args:
        path: of the file.

    Raises:
        OSError: there is no such file.

    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._identity = _identity(path)

    def remove(self) -> None:
        """Remove the file unless another server has put its own there. Call this before the socket is closed.

        As long as the socket listens, no server takes the path, so nothing changes between the look and the removal.
        """
        try:
            if _identity(self._path) == self._identity:
                self._path.unlink()
        except FileNotFoundError:
            return


def _identity(path: Path) -> tuple[int, int, int]:
    """Return the identity of a file; its inode alone may be reused after a removal."""
    status = path.lstat()
    return status.st_dev, status.st_ino, status.st_mtime_ns


def bind_unix(path: str, own: Callable[[Path], None]) -> tuple[socket.socket, SocketFile | None]:
    """Bind a socket to a path, or take the one that systemd has bound to it, whose file stays for the next server.

    The socket file that a dead server left there is replaced.

    Args:
        path: of the socket file.
        own: gives the file its owner and permissions.

    Raises:
        UnavailableError: the path cannot be used.

    """
    given = given_socket(path)
    if given is not None:
        return given, None
    try:
        remove_stale(Path(path))
        listener = _bound(path)
    except (OSError, ValueError) as error:
        raise unavailable(path, error) from error
    try:
        own(Path(path))
        return listener, SocketFile(Path(path))
    except OSError as error:
        listener.close()
        raise unavailable(path, error) from error


def _bound(path: str) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        listener.bind(path)
    except (OSError, ValueError):
        listener.close()
        raise
    return listener


def remove_stale(path: Path) -> None:
    """Remove the socket file that a dead server left at ``path``; any other file, or a socket in use, stays."""
    try:
        if not stat.S_ISSOCK(path.stat().st_mode):
            return
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()


def check_free(path: Path) -> None:
    """Make sure that a library may bind ``path``, also one that would remove a socket in use.

    Raises:
        OSError: another server listens there, or it is no socket.

    """
    remove_stale(path)
    if os.path.lexists(path):
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def unavailable(address: str, error: Exception) -> UnavailableError:
    """Say why an address cannot be listened on."""
    return UnavailableError(f"cannot listen on {address}: {getattr(error, 'strerror', None) or error}")
