"""Transport `grpc`: services over TCP or a Unix socket, in asyncio on the loop thread."""

from collections.abc import Callable
from typing import cast

import grpc
import grpc.aio

from policybridge_serdes.errors import UnavailableError
from policybridge_serdes.plugins import Table
from policybridge_server.transports.contract import Host
from policybridge_server.transports.grpc_calls import Calls

AddService = Callable[[grpc.aio.Server, Host, Calls], None]
"""Adds one service to a server that has not started; what runs is counted in ``Calls``, which a drain waits for."""

SERVICES = Table(
    kind="gRPC service",
    group="policybridge.grpc_services",
    own={
        "policy": "policybridge_server.transports.grpc_service:add_to_server",
        "repository": "policybridge_server.transports.repository_service:add_to_server",
    },
)

_ENVELOPE = 1 << 20
"""Bytes that a message may have beside its observation: names, shapes, labels."""


class GrpcTransport:
    """Listens on one address, ``HOST:PORT`` or ``unix:PATH``."""

    def __init__(self, address: str) -> None:
        self._asked = address
        self._address = address
        self._calls = Calls()

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
        for name in SERVICES.names():
            cast("AddService", SERVICES.load(name))(self._server, host, self._calls)
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
        await self._calls.drain(grace)
        await self._server.stop(None)
