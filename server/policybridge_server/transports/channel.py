"""The bytes of one client inside the loop's turns: a connected socket, or a pair of FIFOs.

Bytes that cannot be sent yet wait here. While some wait, nothing is read, so that a client that does not read its
answers cannot queue more requests.
"""

import contextlib
import fcntl
import os
import select
import socket
import termios
from array import array
from collections.abc import Callable
from functools import partial
from typing import Final

from policybridge_server.loop import Handler, Loop

_READ: Final = 1 << 14
"""Bytes of one read. A larger buffer costs 7 µs a read (measured), because malloc takes fresh pages for it."""

_READ_MORE: Final = 1 << 18
"""Bytes of the read after one that has filled its buffer."""


class Channel:
    """Reads from one descriptor and writes to another, or to the same.

    Args:
        incoming: descriptor to read from, non-blocking.
        outgoing: descriptor to write to, non-blocking; for a socket the same as ``incoming``.
        close: closes the descriptors.
        loop: the loop of their events.
        handler: gets the events. On EPOLLOUT it calls `send_waiting`.

    Attributes:
        is_open: whether `close` has not been called.
        expected: bytes of one message that a large read may bring; a handler of many small messages sets it.
        takes_reports: whether most messages are large, so that each read may bring as much.
        unsent: bytes that wait until the client reads.

    """

    def __init__(self, incoming: int, outgoing: int, close: Callable[[], None], loop: Loop, handler: Handler) -> None:
        self.is_open = True
        self.expected = _READ_MORE
        self.takes_reports = False
        # A bytearray: appending to it, or cutting its front, does not copy its content.
        self.unsent = bytearray()
        self._incoming = incoming
        self._outgoing = outgoing
        self._close = close
        # A `partial` needs no Python call. They raise BlockingIOError if there is nothing to read, or no room.
        self._take: Callable[[int], bytes] = partial(os.read, incoming)
        self._put: Callable[[bytes | bytearray], int] = partial(os.write, outgoing)
        self._loop = loop
        self._reading = True
        self._full = False
        loop.watch(incoming, handler)
        if outgoing != incoming:
            loop.watch(outgoing, handler, 0)

    def receive(self) -> bytes | None:
        """Return the arrived bytes: ``b""`` at the end or on a broken connection, ``None`` for nothing yet."""
        try:
            if self.takes_reports:
                return self._loop.read(self._incoming)
            wanted = max(_READ, min(self.expected, _READ_MORE)) if self._full else _READ
            data = self._take(wanted)
        except BlockingIOError:
            return None
        except OSError:
            return b""
        self._full = len(data) >= wanted
        return data

    def send(self, data: bytes) -> None:
        """Send ``data`` after the waiting bytes. Errors are ignored: the next read reports a broken connection."""
        if not self.is_open:
            return
        if self.unsent:
            self.unsent += data
            return
        sent = self._write(data)
        if sent != len(data):
            self.unsent += memoryview(data)[sent:]
            self._watch()

    def send_waiting(self) -> None:
        """Send as many of the waiting bytes as the client takes."""
        del self.unsent[: self._write(self.unsent)]
        if not self.unsent:
            self._watch()

    def _write(self, data: bytes | bytearray) -> int:
        try:
            return self._put(data)
        except BlockingIOError:
            return 0
        except OSError:
            return len(data)

    def read(self, wanted: bool) -> None:
        """Read arriving bytes, or leave them in the kernel's buffer to make the client wait."""
        if wanted != self._reading:
            self._reading = wanted
            self._watch()

    def _watch(self) -> None:
        if not self.is_open:
            return
        reads = select.EPOLLIN if self._reading and not self.unsent else 0
        writes = select.EPOLLOUT if self.unsent else 0
        if self._incoming == self._outgoing:
            self._loop.rewatch(self._incoming, reads | writes)
        else:
            self._loop.rewatch(self._incoming, reads)
            self._loop.rewatch(self._outgoing, writes)

    def close(self) -> None:
        """Close the descriptors; a second call does nothing."""
        if self.is_open:
            self.is_open = False
            self._loop.unwatch(self._incoming)
            self._loop.unwatch(self._outgoing)
            self._close()


class SocketChannel(Channel):
    """A connected, non-blocking socket, which the channel owns."""

    def __init__(self, connection: socket.socket, loop: Loop, handler: Handler) -> None:
        super().__init__(connection.fileno(), connection.fileno(), connection.close, loop, handler)
        self._connection = connection

    @property
    def settled(self) -> bool:
        """Whether all is sent and all is read: closing a Unix socket with unread bytes resets it."""
        if self.unsent:
            return False
        unread = array("i", [0])
        fcntl.ioctl(self._incoming, termios.FIONREAD, unread)
        return not unread[0]

    def finish(self) -> None:
        """Tell the client that nothing more will be sent; its own bytes can still be received."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
