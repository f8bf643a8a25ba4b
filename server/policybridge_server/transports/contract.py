"""The transport contract, and the table of those that there are."""

from dataclasses import dataclass
from typing import Protocol, cast

from policybridge_serdes.plugins import Table
from policybridge_server.config import ServerConfig
from policybridge_server.engine.gate import Gate
from policybridge_server.engine.publisher import Publisher
from policybridge_server.turns import TurnSelector


@dataclass(frozen=True)
class Host:
    """What a transport is given: who answers, who takes versions, the loop that it runs on, the operator's limits."""

    gate: Gate
    publisher: Publisher
    turns: TurnSelector
    config: ServerConfig


class Transport(Protocol):
    """One way in, at one address."""

    @property
    def address(self) -> str:
        """The real address, as clients take it: ``grpc:HOST:PORT``, ``grpc:unix:PATH``, ``socket:PATH``."""
        ...

    async def start(self, host: Host) -> None:
        """Listen.

        Raises:
            UnavailableError: the address cannot be had; the message says which and why.

        """
        ...

    async def stop(self, grace: float) -> None:
        """Take nobody new, let running sessions end for ``grace`` seconds, then end them."""
        ...


TRANSPORTS = Table(
    kind="transport",
    group="policybridge.transports",
    own={
        "grpc": "policybridge_server.transports.grpc:GrpcTransport",
        "socket": "policybridge_server.transports.socket:SocketTransport",
    },
)


class _Made(Transport, Protocol):
    def __init__(self, address: str) -> None: ...


def load_transport(name: str, address: str) -> Transport:
    """Make the transport called ``name`` for ``address``.

    Raises:
        NotFoundError: there is none of that name.

    """
    return cast("type[_Made]", TRANSPORTS.load(name))(address)
