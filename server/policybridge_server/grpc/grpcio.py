"""Transport `grpcio`: the same services as `grpc`, by gRPC's own library: slower, and with all that it can."""

import grpc
import grpc.aio

from policybridge_core.errors import UnavailableError
from policybridge_server.grpc.calls import Calls
from policybridge_server.grpc.services import add_services
from policybridge_server.transports.contract import Host

_SHORTEST_PING_MS = 100
"""Shortest time between a client's pings. By default gRPC disconnects clients that do not wait 5 minutes."""


class GrpcioTransport:
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
        limit = host.config.message_limit
        options = [
            ("grpc.max_receive_message_length", limit),
            ("grpc.max_send_message_length", limit),
            ("grpc.so_reuseport", 0),
            ("grpc.keepalive_permit_without_calls", 1),
            ("grpc.http2.min_ping_interval_without_data_ms", _SHORTEST_PING_MS),
            ("grpc.http2.min_recv_ping_interval_without_data_ms", _SHORTEST_PING_MS),
            ("grpc.enable_channelz", 1),
        ]
        self._server = grpc.aio.server(options=options)
        add_services(self._server, host, self._calls)
        try:
            port = self._server.add_insecure_port(self._asked)
        except RuntimeError as error:
            raise UnavailableError(f"cannot listen on {self._asked}: {error}") from error
        if not self._asked.startswith("unix:"):
            self._address = f"{self._asked.rpartition(':')[0]}:{port}"
        await self._server.start()

    async def stop(self, grace: float) -> None:
        """Let running calls end for ``grace`` seconds, then end them; the opener refuses new ones meanwhile.

        gRPC's own grace would answer new calls with CANCELLED, as if their clients had done it.
        """
        await self._calls.drain(grace)
        await self._server.stop(None)
