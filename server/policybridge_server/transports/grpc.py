"""Transport `grpc`: services over TCP or a Unix socket, inside the loop's turns."""

from collections.abc import Callable
from typing import cast

import grpc.aio

from policybridge_serdes.plugins import Table
from policybridge_server.http2.server import Http2Server
from policybridge_server.transports.contract import Host
from policybridge_server.transports.grpc_calls import Calls

AddService = Callable[[grpc.aio.Server, Host, Calls], None]
"""Adds one service to a server that has not started; what runs is counted in ``Calls``, which a drain waits for."""

SERVICES = Table(
    kind="gRPC service",
    group="policybridge.grpc_services",
    own={
        "channelz": "policybridge_server.citizenship.channelz:add_to_server",
        "health": "policybridge_server.citizenship.health:add_to_server",
        "inference": "policybridge_server.inference.service:add_to_server",
        "mlbridge": "policybridge_server.mlbridge.service:add_to_server",
        "policy": "policybridge_server.transports.grpc_service:add_to_server",
        "reflection": "policybridge_server.citizenship.reflection:add_to_server",
        "repository": "policybridge_server.transports.repository_service:add_to_server",
    },
)


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
        self._server = Http2Server(host.turns, host.config.message_limit)
        for name in SERVICES.names():
            # It takes servicers as a grpc.aio.Server does, which has no interface to implement.
            add = cast("Callable[[Http2Server, Host, Calls], None]", SERVICES.load(name))
            add(self._server, host, self._calls)
        self._address = self._server.listen(self._asked)

    async def stop(self, grace: float) -> None:
        """Let running calls end for ``grace`` seconds, then end them; the gate refuses new ones meanwhile."""
        await self._calls.drain(grace)
        await self._server.stop()
