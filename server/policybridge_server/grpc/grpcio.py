"""Transport `grpcio`: the same services as `grpc`, by gRPC's own library: slower, and with all that it can."""

from functools import partial

import grpc
import grpc.aio

from policybridge_core.errors import UnavailableError
from policybridge_server.grpc.services import add_services
from policybridge_server.grpc.transport import GrpcTransport
from policybridge_server.transports.contract import Host

_SHORTEST_PING_MS = 100
"""Shortest time between a client's pings. By default gRPC disconnects clients that do not wait 5 minutes."""


class GrpcioTransport(GrpcTransport):
    """Listens on one address, ``HOST:PORT`` or ``unix:PATH``."""

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
        server = grpc.aio.server(options=options)
        add_services(server, host, self._calls)
        try:
            port = server.add_insecure_port(self._asked)
        except RuntimeError as error:
            raise UnavailableError(f"cannot listen on {self._asked}: {error}") from error
        if not self._asked.startswith("unix:"):
            self._address = f"{self._asked.rpartition(':')[0]}:{port}"
        await server.start()
        # gRPC's own grace would answer new calls with CANCELLED, as if their clients had done it.
        self._end = partial(server.stop, None)
