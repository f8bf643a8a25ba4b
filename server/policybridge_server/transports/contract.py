"""The transport contract, and the table of the transports."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

from policybridge_core.plugins import Table
from policybridge_server.access import Access
from policybridge_server.config import ServerConfig
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.ledger.recorder import LedgerRecorder
from policybridge_server.loop import Loop
from policybridge_server.publishing.publisher import Publisher
from policybridge_server.transports.doors import Doors
from policybridge_server.transports.listener import Share

_Shared = TypeVar("_Shared")


@dataclass(frozen=True)
class Host:
    """The parts of the server for a transport.

    Attributes:
        opener: opens the sessions.
        publisher: takes new versions.
        loop: the transport's loop.
        config: the operator's limits.
        access: the rules for clients.
        recorder: the ledger's recorder; ``None`` without a ledger.
        share: this process's share of connections on shared sockets; ``None``: it takes all.

    """

    opener: SessionOpener
    publisher: Publisher
    loop: Loop
    config: ServerConfig
    access: Access
    recorder: LedgerRecorder | None = None
    share: Share | None = None
    _shared: dict[type, object] = field(default_factory=dict)

    @property
    def doors(self) -> Doors:
        """The one `Doors` of this server."""
        return self.shared(Doors, lambda: Doors(self.loop, self.config))

    def shared(self, kind: type[_Shared], make: Callable[[], _Shared]) -> _Shared:
        """Give the one ``kind`` that all transports of this server share; the first call makes it by ``make``."""
        if kind not in self._shared:
            self._shared[kind] = make()
        return cast("_Shared", self._shared[kind])


class Transport(Protocol):
    """Listens on one address."""

    @property
    def address(self) -> str:
        """The real address, such as ``grpc:HOST:PORT``, ``grpc:unix:PATH``, ``socket:PATH`` or ``pipe:BASE``."""

    async def start(self, host: Host) -> None:
        """Listen.

        Raises:
            UnavailableError: the address cannot be used; the message names it and the reason.

        """

    async def stop(self, grace: float) -> None:
        """Accept no new client, give running sessions ``grace`` seconds to end, then end them."""


TRANSPORTS = Table(
    kind="transport",
    group="policybridge.transports",
    own={
        "grpc": "policybridge_server.grpc.transport:GrpcTransport [server]",
        "grpcio": "policybridge_server.grpc.grpcio:GrpcioTransport [server]",
        "http": "policybridge_server.open_inference.http:HttpTransport [http]",
        "socket": "policybridge_server.transports.socket:SocketTransport [server]",
        "pipe": "policybridge_server.mlbridge.pipes.transport:PipeTransport [server]",
    },
)
"""The transports by the names in front of their addresses."""


class _Made(Transport, Protocol):
    def __init__(self, address: Any) -> None: ...


def load_transport(name: str, address: Any) -> Transport:
    """Make the transport called ``name`` for ``address``: text, or for a pipe also a table of the configuration.

    Raises:
        NotFoundError: no transport has that name; the message lists the names there are.
        InvalidError: the transport does not understand the address.

    """
    return cast("type[_Made]", TRANSPORTS.load(name))(address)
