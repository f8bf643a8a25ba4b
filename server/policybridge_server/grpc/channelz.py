"""channelz: the data of gRPC's own library on its servers and sockets, for tools such as grpcdebug."""

import grpc.aio
from grpc_channelz.v1 import channelz

from policybridge_server.grpc.calls import Calls
from policybridge_server.transports.contract import Host


def add_to_server(server: grpc.aio.Server, host: Host, calls: Calls) -> None:  # noqa: ARG001
    """Serve grpc.channelz.v1.Channelz on ``server``; on another server than the library's it has no data."""
    if isinstance(server, grpc.aio.Server):
        channelz.add_channelz_servicer(server)  # type: ignore[arg-type]
