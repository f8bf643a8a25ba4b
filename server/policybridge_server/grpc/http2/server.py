"""A gRPC server on one address, whose connections are served inside the loop's turns."""

import itertools
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, cast

import grpc

from policybridge_core.errors import UnavailableError, UnsupportedError
from policybridge_server.access import Access
from policybridge_server.budget import PeerBudget
from policybridge_server.grpc.guard import check_call, request_limit
from policybridge_server.grpc.http2.call import ServicerCall
from policybridge_server.grpc.http2.connection import Http2Connection
from policybridge_server.grpc.http2.contract import Call
from policybridge_server.grpc.http2.greeting import REFUSAL
from policybridge_server.grpc.http2.stream import Stream
from policybridge_server.loop import Handler as EventHandler
from policybridge_server.loop import Loop
from policybridge_server.transports.channel import SocketChannel
from policybridge_server.transports.doors import Doors, Wait
from policybridge_server.transports.listener import Listener, Share, bind_tcp, check_port
from policybridge_server.transports.running import Running
from policybridge_server.transports.socket_file import SocketFile, bind_unix
from policybridge_server.transports.tls_channel import TlsDoor

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

_PROTOCOLS: Final = ["h2"]


class Http2Server:
    """Takes servicers as ``grpc.aio.Server`` does.

    Args:
        loop: the loop of its sockets.
        limit: largest request message in bytes.
        access: the rules for clients on TCP, and for socket files.
        doors: track the silent connections.

    Attributes:
        share: of the connections; to be set before `listen`, if other processes listen on the same address.

    """

    def __init__(self, loop: Loop, limit: int, access: Access, doors: Doors) -> None:
        self.share: Share | None = None
        self.loop = loop
        self.limit = limit
        self.doors = doors
        self._access = access
        self._door: TlsDoor | None = None
        self._checks = False
        self._calls: dict[str, Callable[[Stream], Call]] = {}
        self._handlers: dict[str, Handler] = {}
        self._generic: list[grpc.GenericRpcHandler[Any, Any]] = []
        self._listeners: list[Listener] = []
        self._files: list[SocketFile] = []
        self._connections: Running[Http2Connection] = Running()
        self._numbers = itertools.count(1)

    def add_call(self, path: str, serve: Callable[[Stream], Call]) -> None:
        """Let ``serve`` take the calls of one method, without a task."""
        self._calls[path] = serve

    def add_registered_method_handlers(self, service: str, handlers: Mapping[str, Handler]) -> None:
        """Serve the methods of a service."""
        self._handlers |= {f"/{service}/{name}": handler for name, handler in handlers.items()}

    def add_generic_rpc_handlers(self, handlers: Sequence["grpc.GenericRpcHandler[Any, Any]"]) -> None:
        """Serve the methods of these handlers that no registered handler has."""
        self._generic += handlers

    def listen(self, address: str) -> str:
        """Listen on ``HOST:PORT`` or ``unix:PATH``; give the address with the real port.

        Raises:
            UnavailableError: the address cannot be used.
            PreconditionError: others can reach it, and it lacks TLS or tokens.

        """
        on_tcp = not address.startswith("unix:")
        if on_tcp:
            check_port(address)
            self._access.check_address(address)
            self._checks = self._access.asks_for_tokens
            self._door = TlsDoor(self._access.tls, _PROTOCOLS, self.loop) if self._access.tls else None
            listener = bind_tcp(address)
        else:
            listener, file = bind_unix(address.removeprefix("unix:"), self._access.sockets.own)
            self._files.extend([] if file is None else [file])
        refusal = b"" if self._door else REFUSAL
        listening = Listener(listener, self.loop, self.doors, self._accept, refusal)
        listening.share = self.share
        self._listeners.append(listening)
        if not on_tcp:
            return address
        return f"{address.rpartition(':')[0]}:{listener.getsockname()[1]}"

    def _accept(self, connection: socket.socket, address: Any, peer_budget: PeerBudget) -> None:
        if connection.family == socket.AF_UNIX:
            peer = f"unix:{next(self._numbers)}"
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            peer = _peer(connection.family, address)
        try:
            accepted = Http2Connection(connection, peer, peer_budget, self, self._gone)
        except OSError:
            connection.close()  # TLS cannot begin on a connection that is reset already
            return
        self._connections.add(accepted)
        if self.share is not None:
            self.share.connection(1)
        self.doors.expect(accepted, Wait.HELLO)

    def channel(self, connection: socket.socket, handler: EventHandler, peer: PeerBudget) -> SocketChannel:
        """Make the channel of a connection, with TLS if the port speaks it."""
        if self._door is None:
            return SocketChannel(connection, self.loop, handler)
        return self._door.channel(connection, handler, peer)

    def _gone(self, connection: Http2Connection) -> None:
        """Forget a connection that is closed."""
        self.doors.satisfied(connection)
        if connection in self._connections and self.share is not None:
            self.share.connection(-1)
        self._connections.discard(connection)

    def limit_of(self, path: str) -> int:
        """Give the bytes of the largest request to the method at ``path``."""
        return request_limit(path, self.limit)

    def begin(self, stream: Stream) -> Call:
        """Begin the call of a new stream.

        Raises:
            UnsupportedError: there is no such method.
            UnauthenticatedError: the client needs a token that the server knows.
            PermissionDeniedError: the client's token lacks the scope.

        """
        path = stream.headers.path
        serve = self._calls.get(path)
        handler = None if serve else self._handlers.get(path) or self._found(stream)
        if serve is None and handler is None:
            raise UnsupportedError(f"there is no method {path}")
        if self._checks:
            check_call(self._access, path, stream.headers.metadata)
        if serve is not None:
            return serve(stream)
        return ServicerCall(stream, cast("Handler", handler), self.loop)

    def _found(self, stream: Stream) -> "Handler | None":
        details = _Details(stream.headers.path, tuple(stream.headers.metadata))
        for generic in self._generic:
            handler = generic.service(details)
            if handler is not None:
                return handler
        return None

    async def stop(self) -> None:
        """Stop listening, end the remaining calls, and close all connections when their clients have read it."""
        for file in self._files:
            file.remove()
        for listener in self._listeners:
            listener.close()
        for connection in self._connections:
            connection.shut(UnavailableError("the server shut down before the call ended"))
            connection.leave()
        await self._connections.drain(1.0, Http2Connection.close)


class _Details(grpc.HandlerCallDetails):
    def __init__(self, method: str, metadata: tuple[tuple[str, str | bytes], ...]) -> None:
        self.method = method
        self.invocation_metadata = metadata


def _peer(family: int, address: Any) -> str:
    host, port = address[:2]
    return f"ipv6:[{host}]:{port}" if family == socket.AF_INET6 else f"ipv4:{host}:{port}"
