"""Transport `grpc`: services over TCP or a Unix socket, inside the loop's turns."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, cast

from policybridge_server.grpc.calls import Calls
from policybridge_server.grpc.http2.server import Http2Server
from policybridge_server.grpc.services import add_services
from policybridge_server.transports.contract import Host
from policybridge_server.transports.running import Running

if TYPE_CHECKING:
    import grpc.aio

_LAST_WORDS: Final = 5.0
"""Seconds for ended calls to inform their clients."""


def scheme_of(address: str, host: Host) -> str:
    """Return the scheme of a port's address for clients: ``grpcs`` if it speaks TLS."""
    return "grpc" if host.access.tls is None or address.startswith("unix:") else "grpcs"


class GrpcTransport:
    """Listens on one address, ``HOST:PORT`` or ``unix:PATH``."""

    def __init__(self, address: str) -> None:
        self._asked = address
        self._address = address
        self._scheme = "grpc"
        self._calls: Calls = Running()

    @property
    def address(self) -> str:
        """The address with the real port, in clients' form."""
        return f"{self._scheme}:{self._address}"

    async def start(self, host: Host) -> None:
        """Listen; an address in use is an error."""
        server = Http2Server(host.loop, host.config.message_limit, host.access, host.doors)
        server.share = host.share
        # Http2Server takes servicers as a grpc.aio.Server does, which has no interface to implement.
        add_services(cast("grpc.aio.Server", server), host, self._calls)
        self._address = server.listen(self._asked)
        self._scheme = scheme_of(self._asked, host)
        self._end: Callable[[], Awaitable[None]] = server.stop

    async def stop(self, grace: float) -> None:
        """Let running calls end for ``grace`` seconds, then end them; the opener refuses new ones."""
        await self._calls.drain(grace, lambda call: call.shut(), _LAST_WORDS)
        await self._end()
