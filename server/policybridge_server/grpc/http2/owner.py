"""The interface of a server for its connections."""

import socket
from typing import Protocol

from policybridge_server.budget import PeerBudget
from policybridge_server.grpc.http2.contract import Call
from policybridge_server.grpc.http2.stream import Stream
from policybridge_server.loop import Handler, Loop
from policybridge_server.transports.channel import SocketChannel
from policybridge_server.transports.doors import Doors


class ConnectionOwner(Protocol):
    """The server that accepted a connection.

    Attributes:
        loop: the loop that handles the events of the connections.
        limit: the limit of a request message in bytes.
        doors: learn when a connection begins to carry a call, and when it stops.

    """

    loop: Loop
    limit: int
    doors: Doors

    def channel(self, connection: socket.socket, handler: Handler, peer: PeerBudget) -> SocketChannel:
        """Make the channel of a connection."""

    def limit_of(self, path: str) -> int:
        """Give the limit of a request to the method at ``path``, in bytes."""

    def begin(self, stream: Stream) -> Call:
        """Begin the call of a new stream.

        Raises:
            PolicyBridgeError: the server has no such method.

        """
