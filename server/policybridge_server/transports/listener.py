"""Listening sockets inside the loop's turns."""

import errno
import logging
import select
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from policybridge_server.loop import Loop

_LOG = logging.getLogger(__name__)

_ACCEPT_PAUSE: Final = 0.1
_BACKLOG: Final = 1024


class Listener:
    """Accepts inside the loop's turns.

    Args:
        listener: bound; the object owns it.
        loop: where its events are served.
        accepted: called with each connection, which is non-blocking, and its client's address.

    """

    def __init__(self, listener: socket.socket, loop: Loop, accepted: Callable[[socket.socket, Any], None]) -> None:
        self._listener = listener
        self._loop = loop
        self._accepted = accepted
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        loop.watch(listener.fileno(), self)

    def ready(self, events: int) -> None:  # noqa: ARG002
        """Accept all connections that wait."""
        while True:
            try:
                connection, address = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:
                self._pause(error)
                return
            connection.setblocking(False)
            self._accepted(connection, address)

    def _pause(self, error: OSError) -> None:
        # Without free descriptors the listener stays readable: trying again at once would only use up the processor.
        if error.errno in (errno.EMFILE, errno.ENFILE):
            _LOG.warning("cannot accept: %s", error)
            self._loop.rewatch(self._listener.fileno(), 0)
            self._loop.call_later(_ACCEPT_PAUSE, self._resume)

    def _resume(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.rewatch(self._listener.fileno(), select.EPOLLIN)

    def close(self) -> None:
        """Stop listening."""
        self._loop.unwatch(self._listener.fileno())
        self._listener.close()


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
