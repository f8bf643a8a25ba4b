"""A connected, non-blocking socket inside the loop's turns: what cannot be sent waits, reading can be paused."""

import contextlib
import select
import socket
from typing import Final

from policybridge_server.loop import Handler, Loop

_READ: Final = 1 << 14
"""A larger buffer costs 7 µs a read, which malloc spends on pages; only who fills this one gets it."""

_READ_MORE: Final = 1 << 18


class Channel:
    """One connection's bytes.

    Args:
        connection: connected and non-blocking; the channel owns it.
        loop: where its events are served.
        handler: told of them.

    """

    def __init__(self, connection: socket.socket, loop: Loop, handler: Handler) -> None:
        self._connection = connection
        self._loop = loop
        self._reading = True
        self._unsent = b""
        self._wanted = _READ
        loop.watch(connection.fileno(), handler)

    @property
    def is_open(self) -> bool:
        """Whether it has not been closed."""
        return self._connection.fileno() >= 0

    def receive(self) -> bytes | None:
        """Give what has arrived: ``b""`` at the end or after a break, ``None`` for nothing yet."""
        try:
            data = self._connection.recv(self._wanted)
        except BlockingIOError:
            return None
        except OSError:
            return b""
        self._wanted = _READ if len(data) < self._wanted else _READ_MORE
        return data

    def send(self, data: bytes) -> None:
        """Send ``data`` after all that still waits; a broken connection tells itself when it is read."""
        if not self.is_open:
            return
        if self._unsent:
            self._unsent += data
            return
        sent = self._try(data)
        if sent != len(data):
            self._unsent = data[sent:]
            self._watch()

    def send_waiting(self) -> None:
        """Send what still waits, as far as it goes."""
        self._unsent = self._unsent[self._try(self._unsent) :]
        if not self._unsent:
            self._watch()

    def _try(self, data: bytes) -> int:
        try:
            return self._connection.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            return len(data)

    def read(self, wanted: bool) -> None:
        """Take or leave what arrives; what is left waits with the sender."""
        if wanted != self._reading:
            self._reading = wanted
            self._watch()

    def _watch(self) -> None:
        if self.is_open:
            # Who does not read answers is not read either: what waits here stays small.
            events = select.EPOLLOUT if self._unsent else select.EPOLLIN if self._reading else 0
            self._loop.rewatch(self._connection.fileno(), events)

    def finish(self) -> None:
        """Tell the peer that nothing more will come; what it still sends can be received."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the connection; twice is once."""
        if self.is_open:
            self._loop.unwatch(self._connection.fileno())
            self._connection.close()
