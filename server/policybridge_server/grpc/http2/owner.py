"""The interface of a server for its connections."""

import socket
from typing import Protocol

from policybridge_server.budget import Memory
from policybridge_server.grpc.http2.contract import Call
from policybridge_server.grpc.http2.stream import Stream
from policybridge_server.loop import Handler, Loop
from policybridge_server.transports.channel import SocketChannel
from policybridge_server.transports.doors import Doors


class ConnectionOwner(Protocol):
    """The server that accepted a connection.

    Attributes:
        loop: the loop of their events.
        limit: largest request message in bytes.
        memory: the budget of all connections.
        doors: learn when the connection carries a call, and when it does not.

    """

    loop: Loop
    limit: int
    memory: Memory
    doors: Doors

    def channel(self, connection: socket.socket, handler: Handler) -> SocketChannel:
        """Make the channel of a connection."""

    def limit_of(self, path: str) -> int:
        """Give the bytes of the largest request to the method at ``path``."""

    def begin(self, stream: Stream) -> Call:
        """Begin the call of a new stream.

        Raises:
            PolicyBridgeError: the server has no such method.

        """
