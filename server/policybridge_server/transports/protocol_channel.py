"""A protocol of asyncio on a channel of the loop, with the same TLS and turns as the server's own protocols."""

import asyncio
import logging
import select
import socket
from collections.abc import Callable
from typing import Final

from policybridge_server.loop import Handler
from policybridge_server.transports.channel import SocketChannel

_LOG = logging.getLogger(__name__)

_MUCH: Final = 64 << 10
"""Unsent bytes from which on the protocol is asked to write no more."""


class ProtocolChannel(asyncio.Transport):
    """The transport of one connection. The protocol is made when the first bytes have come, after the TLS handshake.

    Args:
        connection: just accepted, non-blocking.
        open_channel: makes its channel, with TLS if the port speaks it.
        make_protocol: makes what takes the bytes.

    Raises:
        OSError: the connection is reset already.

    """

    def __init__(
        self,
        connection: socket.socket,
        open_channel: Callable[[socket.socket, Handler], SocketChannel],
        make_protocol: Callable[[], asyncio.Protocol],
    ) -> None:
        super().__init__()
        self._make = make_protocol
        self._protocol: asyncio.Protocol | None = None
        self._closing = self._blocked = False
        self._channel = open_channel(connection, self)

    def ready(self, events: int) -> None:
        """Send and take bytes; an error ends this connection and no other."""
        try:
            if events & select.EPOLLOUT:
                self._channel.send_waiting()
                self._sent()
            if events & select.EPOLLIN and not self._closing:
                self._receive()
            elif events & (select.EPOLLHUP | select.EPOLLERR):
                self.abort()
        except Exception:
            _LOG.exception("a connection failed")
            self.abort()

    def _receive(self) -> None:
        data = self._channel.receive()
        if data is None:
            return
        if not data and self._protocol is None:
            self.abort()
            return
        if self._protocol is None:
            self._protocol = self._make()
            self.began(self._protocol)
            self._protocol.connection_made(self)
        if data:
            self._protocol.data_received(data)
        elif not self._protocol.eof_received():
            self.close()

    def began(self, protocol: asyncio.Protocol) -> None:
        """Take the news that the first bytes have come."""

    def lost(self, protocol: asyncio.Protocol | None) -> None:
        """Take the news that the connection is closed."""

    def progressed(self) -> None:
        """Take the news that the client has read, or that more waits for it."""

    def _sent(self) -> None:
        self.progressed()
        if self._channel.unsent:
            return
        if self._blocked and self._protocol is not None:
            self._blocked = False
            self._protocol.resume_writing()
        if self._closing:
            self._end()

    @property
    def unsent(self) -> int:
        """Bytes that the client has not read."""
        return len(self._channel.unsent)

    def get_write_buffer_size(self) -> int:
        """Give `unsent`, by asyncio's name."""
        return self.unsent

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes as soon as the client takes them."""
        if self._closing:
            return
        self._channel.send(bytes(data))
        if self.unsent:
            self.progressed()
        if self.unsent > _MUCH and not self._blocked and self._protocol is not None:
            self._blocked = True
            self._protocol.pause_writing()

    def pause_reading(self) -> None:
        """Stop reading: the kernel's buffer keeps the client's further bytes."""
        self._channel.read(False)

    def resume_reading(self) -> None:
        """Read again."""
        if not self._closing:
            self._channel.read(True)

    def is_closing(self) -> bool:
        """Whether the connection is closed, or will be when all is sent."""
        return self._closing

    def close(self) -> None:
        """Close the connection when all is sent."""
        if not self._closing:
            self._closing = True
            self._channel.read(False)
            if not self._channel.unsent:
                self._end()

    def abort(self) -> None:
        """Close the connection now."""
        self._closing = True
        self._end()

    def _end(self) -> None:
        if not self._channel.is_open:
            return
        protocol, self._protocol = self._protocol, None
        if protocol is not None:
            # Without one the TLS handshake may not be over: there is nothing to say a last word to.
            self._channel.finish()
        self._channel.close()
        self.lost(protocol)
        if protocol is not None:
            # Later, as asyncio does: the protocol may have closed in the midst of its own work.
            asyncio.get_running_loop().call_soon(protocol.connection_lost, None)
