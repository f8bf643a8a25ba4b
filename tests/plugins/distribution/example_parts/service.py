"""A gRPC service beside PolicyBridge's own: ``/example.Greeter/Greet``, bytes in and bytes out."""

import grpc
import grpc.aio

from policybridge_server.grpc.calls import Calls
from policybridge_server.transports.contract import Host


def add_to_server(server: grpc.aio.Server, host: Host, _calls: Calls) -> None:
    """Serve the service on ``server``."""

    async def greet(request: bytes, _context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        names = ", ".join(host.opener.engine.repository.policies())
        return b"hello " + request + b" from " + names.encode()

    methods = {"Greet": grpc.unary_unary_rpc_method_handler(greet)}
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("example.Greeter", methods),))
