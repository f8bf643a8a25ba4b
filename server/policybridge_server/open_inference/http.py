"""Transport `http`: the protocol's REST paths, by aiohttp, on the loop thread."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, cast

from aiohttp import hdrs, web

from policybridge_core.errors import PolicyBridgeError, Status
from policybridge_core.text import without_paths
from policybridge_server.budget import PEER, PeerBudget
from policybridge_server.loop import Handler as EventHandler
from policybridge_server.open_inference.http_body import Bodies
from policybridge_server.open_inference.http_guard import HttpGuard
from policybridge_server.open_inference.http_guest import REFUSAL, HttpGuest, HttpGuests
from policybridge_server.open_inference.http_paths import Paths, reply
from policybridge_server.open_inference.inference import shared_inference
from policybridge_server.open_inference.metadata import Metadata
from policybridge_server.page.routes import Page
from policybridge_server.telemetry.metrics import Metrics
from policybridge_server.transports.channel import SocketChannel
from policybridge_server.transports.contract import Host
from policybridge_server.transports.listener import Listener, bind_tcp, check_port
from policybridge_server.transports.running import Running
from policybridge_server.transports.tls_channel import TlsDoor

_LOG = logging.getLogger(__name__)

_HTTP: Final = {
    Status.INVALID_ARGUMENT: 400,
    Status.FAILED_PRECONDITION: 400,
    Status.OUT_OF_RANGE: 400,
    Status.UNAUTHENTICATED: 401,
    Status.PERMISSION_DENIED: 403,
    Status.NOT_FOUND: 404,
    Status.RESOURCE_EXHAUSTED: 413,
    Status.UNIMPLEMENTED: 501,
    Status.UNAVAILABLE: 503,
    Status.DEADLINE_EXCEEDED: 504,
}
"""Every other status is a failure of the server, 500."""

_LAST_WORDS: Final = 1.0
"""Seconds for the replies to requests that a stop has ended."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpTransport:
    """Listens on one address, ``HOST:PORT``."""

    def __init__(self, address: str) -> None:
        self._asked = address
        self._address = address
        self._scheme = "http"
        self._running: Running[asyncio.Task[None]] = Running()

    @property
    def address(self) -> str:
        """The address with the real port."""
        return f"{self._scheme}:{self._address}"

    async def start(self, host: Host) -> None:
        """Listen; an address in use is an error."""
        check_port(self._asked)
        host.access.check_address(self._asked)
        listener = bind_tcp(self._asked)
        self._loop = host.loop
        self._counters = host.loop.counters
        self._guests = HttpGuests(host.doors, Bodies(host.config.message_limit))
        self._guard = HttpGuard(host.access, self._asked, host.config.http_host)
        self._door = TlsDoor(host.access.tls, ["http/1.1"], host.loop) if host.access.tls else None
        self._scheme = "https" if self._door else "http"
        inference = shared_inference(host)
        application = web.Application(middlewares=[self._mapped])
        application.add_routes(Paths(inference, Metadata(host.opener, inference.states)).routes())
        application.add_routes(metrics_routes(host))
        application.add_routes(Page(host).routes())
        self._runner = web.AppRunner(
            application,
            access_log=None,
            logger=_Faults(_LOG),
            shutdown_timeout=_LAST_WORDS,
            keepalive_timeout=host.config.idle_timeout,
            # `Bodies` unpacks, once the request is judged; aiohttp would on the loop, before.
            auto_decompress=False,
        )
        await self._runner.setup()
        self._server = cast("web.Server", self._runner.server)
        self._address = f"{self._asked.rpartition(':')[0]}:{listener.getsockname()[1]}"
        refusal = b"" if self._door else REFUSAL
        self._listener = Listener(listener, host.loop, host.doors, self._accept, refusal)

    def _accept(self, connection: socket.socket, address: object, peer: PeerBudget) -> None:  # noqa: ARG002
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        try:
            HttpGuest(connection, partial(self._channel, peer), self._server, self._guests, peer)
        except OSError:
            connection.close()  # TLS cannot begin on a connection that is reset already

    def _channel(self, peer: PeerBudget, connection: socket.socket, handler: EventHandler) -> SocketChannel:
        if self._door is None:
            return SocketChannel(connection, self._loop, handler)
        return self._door.channel(connection, handler, peer)

    async def stop(self, grace: float) -> None:
        """Let running requests end for ``grace`` seconds, then end them; the opener refuses new ones."""
        self._listener.close()
        # The runner itself ends the requests that are left.
        await self._running.drain(grace, lambda _: None)
        await self._runner.cleanup()

    @web.middleware
    async def _mapped(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self._running.add(request.task)
        try:
            self._guard.check(request)
            async with self._guests.served(request):
                return await handler(request)
        except PolicyBridgeError as error:
            self._counters.told("http", error.status)
            return _failure(_HTTP.get(error.status, 500), str(error))
        except web.HTTPException as error:
            return _failure(error.status, f"{request.method} {request.path}: {error.reason}")
        except ConnectionError:
            # The client left, or was closed, within its request: no client reads this. An error would be logged.
            return _failure(400, "the connection was closed within the request")
        except Exception as error:
            _LOG.exception("a request failed")
            self._counters.told("http", Status.UNKNOWN)
            return _failure(500, f"the server failed: {error!r}")
        finally:
            self._running.discard(request.task)


class _Faults(logging.LoggerAdapter[logging.Logger]):
    """Takes aiohttp's log: only faults of clients, because `HttpTransport` itself logs all failures of a request.

    A client must not fill the operator's log with tracebacks.
    """

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        kwargs["exc_info"] = None
        super().log(min(level, logging.INFO), msg, *args, **kwargs)


def _failure(status: int, message: str) -> web.Response:
    answer = reply({"error": without_paths(message)}, status)
    if status == _HTTP[Status.UNAUTHENTICATED]:
        answer.headers[hdrs.WWW_AUTHENTICATE] = "Bearer"
    return answer


def metrics_routes(host: Host) -> list[web.RouteDef]:
    """Give the path; it needs the scope `Scope.READ` if there are tokens."""
    metrics = Metrics(host)

    async def answer(request: web.Request) -> web.Response:
        text, kind = await metrics.page(request.headers.get(hdrs.ACCEPT, ""), request[PEER].work)
        return web.Response(body=text, headers={hdrs.CONTENT_TYPE: kind})

    return [web.get("/metrics", answer)]
