"""Listening sockets inside the loop's turns."""

import errno
import logging
import select
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, Protocol

from policybridge_core.errors import UnavailableError
from policybridge_server.budget import PeerBudget
from policybridge_server.loop import Loop
from policybridge_server.systemd import given_socket
from policybridge_server.transports.doors import Doors
from policybridge_server.transports.peers import peer_of
from policybridge_server.transports.socket_file import unavailable

_LOG = logging.getLogger(__name__)

_ACCEPT_PAUSE: Final = 0.1
_BACKLOG: Final = 1024

_MOST: Final = 64
"""Limit of connections accepted in one turn, so that existing ones need not wait for all new ones."""

_TRIES: Final = 4
"""Turns within which a dismissed connection must be closed."""

_PLACES: Final = 8
"""Limit of guests dismissed for one new client; other new clients may take the free places."""

_LEFT: Final = 0.004
"""Seconds that a connection is left to a less busy process, at most `_LOOKS` times."""

_LOOKS: Final = 25
"""Looks, 0.1 s in all, within which a busy process accepts; a process that does not hangs."""


class Share(Protocol):
    """Which of the processes that listen on the same socket takes the next connection."""

    def takes(self) -> bool:
        """Whether this process does."""

    def connection(self, change: int) -> None:
        """Count an opened (1) or closed (-1) connection of this process."""


class Listener:
    """Accepts inside the loop's turns.

    If descriptors run out, the client that was silent for longest is closed for the new one; if all have
    sessions, the new client is refused.

    Args:
        listener: the bound socket, owned by this object.
        loop: the loop of its events.
        doors: reserve descriptors, and have the peers' budgets.
        accepted: called with each connection, which is non-blocking, its client's address and its peer's budget.
        refusal: the bytes for a client without a place.

    Attributes:
        share: decides which process takes a connection; ``None``: no other process listens on the socket.

    """

    def __init__(
        self,
        listener: socket.socket,
        loop: Loop,
        doors: Doors,
        accepted: Callable[[socket.socket, Any, PeerBudget], None],
        refusal: bytes,
    ) -> None:
        self.share: Share | None = None
        self._looks = 0
        self._listener = listener
        self._loop = loop
        self._doors = doors
        self._accepted = accepted
        self._refusal = refusal
        self._troubled = False
        listener.listen(_BACKLOG)
        listener.setblocking(False)
        loop.watch(listener.fileno(), self)

    def ready(self, events: int) -> None:  # noqa: ARG002
        """Accept connections that wait."""
        for _ in range(_MOST):
            if self.share is not None and not self.share.takes() and self._looks < _LOOKS:
                self._leave()
                return
            self._looks = 0
            try:
                connection, address = self._listener.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                self._pause(error)
                return
            if connection.fileno() < self._doors.boundary:
                self._troubled = False
                self._take(connection, address)
            elif self._doors.make_room():
                self._take_lower(connection, address, _TRIES * _PLACES - 1)
            else:
                self._refuse(connection)

    def _leave(self) -> None:
        """Leave waiting connections to a process with fewer connections; check that it accepts them."""
        self._loop.rewatch(self._listener.fileno(), 0)
        self._loop.call_later(_LEFT, self._look)

    def _look(self) -> None:
        if self._listener.fileno() >= 0:
            waiting = select.poll()
            waiting.register(self._listener, select.POLLIN)
            self._looks = self._looks + 1 if waiting.poll(0) else 0
            self._resume()

    def _take(self, connection: socket.socket, address: Any) -> None:
        connection.setblocking(False)
        self._accepted(connection, address, self._doors.peers.of(peer_of(connection, address)))

    def _take_lower(self, connection: socket.socket, address: Any, tries: int) -> None:
        """Move the connection to the lowest free descriptor, that of the dismissed guest."""
        with suppress(OSError):
            moved = connection.dup()
            connection.close()
            connection = moved
        if connection.fileno() < self._doors.boundary:
            self._take(connection, address)
        elif tries:
            if not tries % _TRIES:
                self._doors.make_room()
            # asyncio closes connections some turns later.
            self._loop.call_soon(self._take_lower, connection, address, tries - 1)
        else:
            self._refuse(connection)

    def _refuse(self, connection: socket.socket) -> None:
        self._warn("descriptors run out, new clients are refused; allow more (ulimit -n)")
        _say_and_close(connection, self._refusal)

    def _pause(self, error: OSError) -> None:
        # Without free descriptors the listener stays readable: trying again at once would only use up the processor.
        if error.errno in (errno.EMFILE, errno.ENFILE) and self._doors.make_room():
            return
        self._warn(f"cannot accept: {error}")
        self._loop.rewatch(self._listener.fileno(), 0)
        self._loop.call_later(_ACCEPT_PAUSE, self._resume)

    def _warn(self, message: str) -> None:
        # Once until a client is accepted again, so that an attacker cannot fill the disk by the log.
        if not self._troubled:
            self._troubled = True
            _LOG.warning("%s: %s", self._listener.getsockname(), message)

    def _resume(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.rewatch(self._listener.fileno(), select.EPOLLIN)

    def close(self) -> None:
        """Stop listening."""
        self._loop.unwatch(self._listener.fileno())
        self._listener.close()


def _say_and_close(connection: socket.socket, words: bytes) -> None:
    connection.setblocking(False)
    with suppress(OSError):
        connection.send(words)
        # Closing a socket with unread bytes resets it, and the client may lose the words.
        connection.recv(1 << 16)
    with suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
    connection.close()


def bind_tcp(address: str) -> socket.socket:
    """Bind a socket to ``HOST:PORT``, or take the one that systemd has bound to it.

    Raises:
        UnavailableError: the address cannot be used.

    """
    host, port = check_port(address)
    given = given_socket(address)
    if given is not None:
        return given
    host = host.removeprefix("[").removesuffix("]")
    return _bound(socket.AF_INET6 if ":" in host else socket.AF_INET, (host, port), address)


def check_port(address: str) -> tuple[str, int]:
    """Take ``HOST:PORT`` apart.

    Raises:
        UnavailableError: it is not one.

    """
    host, colon, port = address.rpartition(":")
    # int() takes more digits than ports have, and refuses very many.
    if not (colon and host and port.isascii() and port.isdigit() and len(port) < 6 and int(port) < 1 << 16):
        raise UnavailableError(
            f"cannot listen on {address!r}: an address is HOST:PORT with a port of 0 to 65535, as in 127.0.0.1:50051"
        )
    return host, int(port)


def _bound(family: int, where: Any, address: str) -> socket.socket:
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise unavailable(address, error) from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
    except (OSError, ValueError, UnicodeError) as error:
        listener.close()
        raise unavailable(address, error) from error
    return listener
