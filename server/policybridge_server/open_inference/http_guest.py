"""The connections of an HTTP port, as guests of the server's doors: aiohttp's connections with time limits."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, cast

from aiohttp import web

from policybridge_core.errors import DeadlineError, PolicyBridgeError
from policybridge_server.open_inference.http_body import Bodies
from policybridge_server.transports.doors import Doors, Wait


def _last_words(status: str, message: str) -> bytes:
    body = json.dumps({"error": message}).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


REFUSAL: Final = _last_words("503 Service Unavailable", "the server is full; try again later")
"""The response to a client for which there is no room."""


class HttpGuest(asyncio.Protocol):
    """One connection: passes each event to aiohttp.

    Args:
        connection: the accepted connection.
        inner: serves the connection.
        guests: the port's guests.

    """

    def __init__(self, connection: socket.socket, inner: asyncio.Protocol, guests: "HttpGuests") -> None:
        self._connection = connection
        self._inner = inner
        self._guests = guests
        self._transport: asyncio.Transport | None = None
        self._begun = self._dismissed = False
        guests.came(self, inner)

    async def serve(self, loop: asyncio.AbstractEventLoop, tls: ssl.SSLContext | None) -> None:
        """Let asyncio take the connection, unless it was dismissed before."""
        if not self._dismissed:
            self._begun = True
            with suppress(OSError):
                await loop.connect_accepted_socket(lambda: self, self._connection, ssl=tls)
            if self._transport is None:
                self._guests.left(self, self._inner)

    @property
    def is_open(self) -> bool:
        """Whether the connection is neither closed nor closing."""
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Hand on that requests can come."""
        self._transport = cast("asyncio.Transport", transport)
        self._inner.connection_made(transport)
        if self._dismissed:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        """Hand bytes on."""
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """Hand the end of the requests on."""
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        """Hand on that the client does not read."""
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Hand on that the client reads again."""
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Hand on that the connection is closed."""
        self._guests.left(self, self._inner)
        self._inner.connection_lost(exc)

    def dismiss(self, error: PolicyBridgeError) -> None:
        """Close the connection; a client with an unfinished request gets the reason."""
        self._dismissed = True
        if self._begun and self._transport is None:
            with suppress(OSError):
                # TLS is being agreed on. asyncio closes the connection when it reads this end.
                self._connection.shutdown(socket.SHUT_RDWR)
        if not self._begun:
            self._guests.left(self, self._inner)
            self._connection.close()
        if self._transport is not None and self.is_open:
            if isinstance(error, DeadlineError):
                self._transport.write(_last_words("408 Request Timeout", str(error)))
            self._transport.close()


class HttpGuests:
    """The connections of one port.

    Args:
        doors: learn which requests are unfinished.
        bodies: the total of their requests' bodies.

    """

    def __init__(self, doors: Doors, bodies: Bodies) -> None:
        self._doors = doors
        self._bodies = bodies
        self._guests: dict[object, HttpGuest] = {}

    def came(self, guest: HttpGuest, inner: asyncio.Protocol) -> None:
        """Wait for the first request of a new connection."""
        self._guests[inner] = guest
        self._doors.expect(guest, Wait.HELLO)

    def left(self, guest: HttpGuest, inner: asyncio.Protocol) -> None:
        """Forget a connection that is closed."""
        self._guests.pop(inner, None)
        self._doors.satisfied(guest)

    @asynccontextmanager
    async def served(self, request: web.Request) -> AsyncIterator[None]:
        """Read the body within its time limit; the block after it has no limit."""
        guest = self._guests.get(request.protocol)
        if guest is not None:
            self._doors.expect(guest, Wait.MESSAGE)
        try:
            async with self._bodies.held(request):
                if guest is not None:
                    self._doors.satisfied(guest)
                yield
        finally:
            if guest is not None and guest.is_open:
                self._doors.expect(guest, Wait.IDLE)
