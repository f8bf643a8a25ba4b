"""The connections of an HTTP port, as guests of the server's doors: aiohttp's connections with time limits."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from aiohttp import web

from policybridge_core.errors import DeadlineError, PolicyBridgeError
from policybridge_server.budget import PeerBudget
from policybridge_server.loop import Handler
from policybridge_server.open_inference.http_body import Bodies
from policybridge_server.transports.channel import SocketChannel
from policybridge_server.transports.doors import Doors, Wait
from policybridge_server.transports.protocol_channel import ProtocolChannel


def _last_words(status: str, message: str) -> bytes:
    body = json.dumps({"error": message}).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Connection: close\r\n\r\n" + body


REFUSAL: Final = _last_words("503 Service Unavailable", "the server is full; try again later")
"""The response to a client for which there is no room."""


class HttpGuest(ProtocolChannel):
    """One connection, which aiohttp serves.

    Args:
        connection: just accepted.
        open_channel: makes its channel.
        serve: makes what serves a connection.
        guests: those of the port.
        peer: the budget of all connections of its client.

    Raises:
        OSError: the connection is reset already.

    """

    def __init__(
        self,
        connection: socket.socket,
        open_channel: Callable[[socket.socket, Handler], SocketChannel],
        serve: Callable[[], asyncio.Protocol],
        guests: "HttpGuests",
        peer: PeerBudget,
    ) -> None:
        super().__init__(connection, open_channel, serve)
        self.peer = peer
        self._guests = guests
        guests.came(self)

    def began(self, protocol: asyncio.Protocol) -> None:
        """Let requests find their connection."""
        self._guests.began(self, protocol)

    def lost(self, protocol: asyncio.Protocol | None) -> None:
        """Forget the connection."""
        self._guests.left(self, protocol)

    def progressed(self) -> None:
        """Give a client that reads its answer the time for more."""
        self._guests.reads(self)

    def dismiss(self, error: PolicyBridgeError) -> None:
        """Close the connection; a client that owes a request is told why."""
        if isinstance(error, DeadlineError) and not self.unsent:
            self.write(_last_words("408 Request Timeout", str(error)))
        self.abort()


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

    def came(self, guest: HttpGuest) -> None:
        """Wait for the first request of a new connection."""
        self._doors.expect(guest, Wait.HELLO)

    def began(self, guest: HttpGuest, protocol: asyncio.Protocol) -> None:
        """Let requests find their connection by what serves it."""
        self._guests[protocol] = guest

    def reads(self, guest: HttpGuest) -> None:
        """Wait for the client to read the rest of its answer, or no longer."""
        if guest.unsent:
            self._doors.expect(guest, Wait.MESSAGE)
        elif not guest.is_closing():
            self._doors.expect(guest, Wait.IDLE)

    def left(self, guest: HttpGuest, protocol: asyncio.Protocol | None) -> None:
        """Forget a connection that is closed."""
        self._guests.pop(protocol, None)
        self._doors.satisfied(guest)

    @asynccontextmanager
    async def served(self, request: web.Request) -> AsyncIterator[None]:
        """Read the body within its time limit; the block after it has no limit, and begins when its peer has a turn."""
        guest = self._guests.get(request.protocol)
        if guest is None:
            raise ConnectionResetError
        self._doors.expect(guest, Wait.MESSAGE)
        try:
            async with self._bodies.held(request, guest.peer):
                self._doors.satisfied(guest)
                await guest.peer.turns.begin()
                yield
        finally:
            if not guest.is_closing():
                self._doors.expect(guest, Wait.IDLE)
