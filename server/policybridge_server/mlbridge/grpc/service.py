"""Users' own services on the gRPC port: `[mlbridge]` of the configuration."""

from collections import defaultdict
from collections.abc import Sequence

import grpc
import grpc.aio

from policybridge_core.errors import InvalidError, PolicyBridgeError
from policybridge_server.config import convert_fields
from policybridge_server.grpc.calls import Calls, add_handlers
from policybridge_server.mlbridge.grpc.config import MethodConfig, MlBridgeConfig
from policybridge_server.mlbridge.grpc.descriptors import ForeignMethod, load_methods
from policybridge_server.mlbridge.grpc.handler import MethodHandler
from policybridge_server.transports.contract import Host


def add_to_server(server: grpc.aio.Server, host: Host, calls: Calls) -> None:
    """Serve every unary method of the configured services; none where there is no ``[mlbridge]``.

    Raises:
        PolicyBridgeError: a source, or the configuration of a method, cannot be used; the message says which and why.

    """
    if host.config.mlbridge is None:
        return
    config = convert_fields(host.config.mlbridge, MlBridgeConfig, "[mlbridge] ")
    handlers: dict[str, dict[str, grpc.RpcMethodHandler[bytes, bytes]]] = defaultdict(dict)
    for foreign, how in _served(config, load_methods(config.protos, config.descriptors)):
        method = _made(foreign, how, host, calls, config.max_sessions)
        method.check()
        # Bytes in and out: a request that is sent again is known by them.
        handlers[foreign.service][foreign.name] = grpc.unary_unary_rpc_method_handler(method.call)
    for service, methods in handlers.items():
        add_handlers(server, calls, service, methods)


def _served(config: MlBridgeConfig, found: Sequence[ForeignMethod]) -> list[tuple[ForeignMethod, MethodConfig]]:
    _check_names("services", config.services, {method.service for method in found})
    _check_names("methods", config.methods, {str(method) for method in found})
    configured = [(method, config.method(method.service, method.name)) for method in found]
    return [(method, how) for method, how in configured if how.serve is not False]


def _check_names(table: str, configured: dict[str, MethodConfig], found: set[str]) -> None:
    for name in configured:
        if name not in found:
            known = ", ".join(sorted(found)) or "none"
            raise InvalidError(f"[mlbridge.{table}] {name!r} is in none of the sources; there are {known}")


def _made(foreign: ForeignMethod, config: MethodConfig, host: Host, calls: Calls, most: int) -> MethodHandler:
    try:
        return MethodHandler(foreign, config, host, calls, most)
    except PolicyBridgeError as error:
        raise InvalidError(f"[mlbridge] {foreign} cannot be served: {error}") from error
