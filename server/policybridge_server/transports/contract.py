"""The transport contract, and the table of those that there are."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast

from policybridge_core.plugins import Table
from policybridge_server.config import ServerConfig
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.loop import Loop
from policybridge_server.publishing.publisher import Publisher

if TYPE_CHECKING:
    from policybridge_server.open_inference.inference import Inference


@dataclass(frozen=True)
class Host:
    """What a transport is given: who answers, who takes versions, the loop that it runs on, the operator's limits."""

    opener: SessionOpener
    publisher: Publisher
    loop: Loop
    config: ServerConfig

    @cached_property
    def inference(self) -> "Inference":
        """The Open Inference Protocol; one for all transports, so that a sequence may go over any."""
        # Late: its messages have Triton's names, so that a process which has imported Triton's client cannot load them.
        from policybridge_server.open_inference.inference import Inference  # noqa: PLC0415

        return Inference(self.opener, self.config.sequence_idle)


class Transport(Protocol):
    """One way in, at one address."""

    @property
    def address(self) -> str:
        """The real address, such as ``grpc:HOST:PORT``, ``grpc:unix:PATH``, ``socket:PATH`` or ``pipe:BASE``."""
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
        "grpc": "policybridge_server.grpc.transport:GrpcTransport [server]",
        "grpcio": "policybridge_server.grpc.grpcio:GrpcioTransport [server]",
        "http": "policybridge_server.open_inference.http:HttpTransport [http]",
        "socket": "policybridge_server.transports.socket:SocketTransport [server]",
        "pipe": "policybridge_server.mlbridge.pipes.transport:PipeTransport [server]",
    },
)


class _Made(Transport, Protocol):
    def __init__(self, address: Any) -> None: ...


def load_transport(name: str, address: Any) -> Transport:
    """Make the transport called ``name`` for ``address``, of the type that the configuration has for it.

    Raises:
        NotFoundError: there is none of that name.

    """
    return cast("type[_Made]", TRANSPORTS.load(name))(address)
