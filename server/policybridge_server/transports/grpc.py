"""Transport `grpc`: PolicyService and RepositoryService over TCP or a Unix socket, in asyncio on the loop thread."""

import grpc
import grpc.aio

from policybridge.v1.policy_service_pb2_grpc import add_PolicyServiceServicer_to_server
from policybridge.v1.repository_service_pb2_grpc import add_RepositoryServiceServicer_to_server
from policybridge_serdes.errors import UnavailableError
from policybridge_server.transports.contract import Host
from policybridge_server.transports.grpc_service import PolicyServicer
from policybridge_server.transports.repository_service import RepositoryServicer

_ENVELOPE = 1 << 20
"""Bytes that a message may have beside its observation: names, shapes, labels."""


class GrpcTransport:
    """Listens on one address, ``HOST:PORT`` or ``unix:PATH``."""

    def __init__(self, address: str) -> None:
        self._asked = address
        self._address = address

    @property
    def address(self) -> str:
        """The address with the real port, as clients take it."""
        return f"grpc:{self._address}"

    async def start(self, host: Host) -> None:
        """Listen; an address that somebody else has is an error."""
        limit = host.config.max_observation_bytes + _ENVELOPE
        options = [
            ("grpc.max_receive_message_length", limit),
            ("grpc.max_send_message_length", limit),
            ("grpc.so_reuseport", 0),
        ]
        self._server = grpc.aio.server(options=options)
        self._servicer = PolicyServicer(host.gate, host.config.max_observation_bytes)
        add_PolicyServiceServicer_to_server(self._servicer, self._server)
        repository = RepositoryServicer(host.publisher, self._servicer.calls)
        add_RepositoryServiceServicer_to_server(repository, self._server)
        try:
            port = self._server.add_insecure_port(self._asked)
        except RuntimeError as error:
            raise UnavailableError(f"cannot listen on {self._asked}: {error}") from error
        if not self._asked.startswith("unix:"):
            self._address = f"{self._asked.rpartition(':')[0]}:{port}"
        await self._server.start()

    async def stop(self, grace: float) -> None:
        """Let running calls end for ``grace`` seconds, then end them; the gate refuses new ones meanwhile.

        gRPC's own grace would answer new calls with CANCELLED, as if their clients had done it.
        """
        await self._servicer.calls.drain(grace)
        await self._server.stop(None)
