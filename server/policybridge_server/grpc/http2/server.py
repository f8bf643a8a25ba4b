"""A gRPC server on one address, whose connections are served inside the loop's turns."""

import itertools
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import grpc

from policybridge_core.errors import UnavailableError, UnsupportedError
from policybridge_server.grpc.http2.call import ServicerCall
from policybridge_server.grpc.http2.connection import Http2Connection
from policybridge_server.grpc.http2.stream import Call, Stream
from policybridge_server.loop import Loop
from policybridge_server.transports.listener import Listener, remove_stale
from policybridge_server.transports.running import Running

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class Http2Server:
    """Takes servicers as ``grpc.aio.Server`` does.

    Args:
        loop: where its sockets are served.
        limit: largest request message in bytes.

    """

    def __init__(self, loop: Loop, limit: int) -> None:
        self.loop = loop
        self.limit = limit
        self._calls: dict[str, Callable[[Stream], Call]] = {}
        self._handlers: dict[str, Handler] = {}
        self._generic: list[grpc.GenericRpcHandler[Any, Any]] = []
        self._listeners: list[Listener] = []
        self._paths: list[Path] = []
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

        """
        try:
            listener = _unix(address.removeprefix("unix:")) if address.startswith("unix:") else _tcp(address)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or error
            raise UnavailableError(f"cannot listen on {address}: {reason}") from error
        self._listeners.append(Listener(listener, self.loop, self._accept))
        if listener.family == socket.AF_UNIX:
            self._paths.append(Path(address.removeprefix("unix:")))
            return address
        return f"{address.rpartition(':')[0]}:{listener.getsockname()[1]}"

    def _accept(self, connection: socket.socket, address: Any) -> None:
        if connection.family == socket.AF_UNIX:
            peer = f"unix:{next(self._numbers)}"
        else:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            peer = _peer(connection.family, address)
        self._connections.add(Http2Connection(connection, peer, self))

    def gone(self, connection: Http2Connection) -> None:
        """Forget a connection that is closed."""
        self._connections.discard(connection)

    def begin(self, stream: Stream) -> Call:
        """Begin the call of a new stream.

        Raises:
            UnsupportedError: there is no such method.

        """
        serve = self._calls.get(stream.headers.path)
        if serve is not None:
            return serve(stream)
        handler = self._handlers.get(stream.headers.path) or self._found(stream)
        if handler is None:
            raise UnsupportedError(f"there is no method {stream.headers.path}")
        return ServicerCall(stream, handler, self.loop)

    def _found(self, stream: Stream) -> "Handler | None":
        details = _Details(stream.headers.path, tuple(stream.headers.metadata))
        for generic in self._generic:
            handler = generic.service(details)
            if handler is not None:
                return handler
        return None

    async def stop(self) -> None:
        """Stop listening, end what is left, and close all connections once their clients have read why."""
        for listener in self._listeners:
            listener.close()
        for path in self._paths:
            path.unlink(missing_ok=True)
        for connection in self._connections:
            connection.shut(UnavailableError("the server shut down before the call ended"))
            connection.leave()
        await self._connections.drain(1.0, Http2Connection.close)


class _Details(grpc.HandlerCallDetails):
    def __init__(self, method: str, metadata: tuple[tuple[str, str | bytes], ...]) -> None:
        self.method = method
        self.invocation_metadata = metadata


def _tcp(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return _bound(family, (host, int(port)))


def _unix(path: str) -> socket.socket:
    remove_stale(Path(path))
    return _bound(socket.AF_UNIX, path)


def _bound(family: int, address: Any) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        if family != socket.AF_UNIX:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
    except BaseException:
        listener.close()
        raise
    return listener


def _peer(family: int, address: Any) -> str:
    host, port = address[:2]
    return f"ipv6:[{host}]:{port}" if family == socket.AF_INET6 else f"ipv4:{host}:{port}"
