"""Transport `grpc`: services over TCP or a Unix socket, inside the loop's turns."""

from collections.abc import Callable
from typing import cast

import grpc.aio

from policybridge_core.plugins import Table
from policybridge_server.grpc.calls import Calls
from policybridge_server.grpc.http2.server import Http2Server
from policybridge_server.transports.contract import Host

AddService = Callable[[grpc.aio.Server, Host, Calls], None]
"""Adds one service to a server that has not started; what runs is counted in ``Calls``, which a drain waits for."""

SERVICES = Table(
    kind="gRPC service",
    group="policybridge.grpc_services",
    own={
        "channelz": "policybridge_server.grpc.channelz:add_to_server [server]",
        "health": "policybridge_server.grpc.health:add_to_server [server]",
        "inference": "policybridge_server.open_inference.service:add_to_server [server]",
        "mlbridge": "policybridge_server.mlbridge.grpc.service:add_to_server [server]",
        "policy": "policybridge_server.grpc.policy_service:add_to_server [server]",
        "reflection": "policybridge_server.grpc.reflection:add_to_server [server]",
        "repository": "policybridge_server.grpc.repository_service:add_to_server [server]",
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
        self._server = Http2Server(host.loop, host.config.message_limit)
        for name in SERVICES.names():
            # It takes servicers as a grpc.aio.Server does, which has no interface to implement.
            add = cast("Callable[[Http2Server, Host, Calls], None]", SERVICES.load(name))
            add(self._server, host, self._calls)
        self._address = self._server.listen(self._asked)

    async def stop(self, grace: float) -> None:
        """Let running calls end for ``grace`` seconds, then end them; the opener refuses new ones meanwhile."""
        await self._calls.drain(grace)
        await self._server.stop()
