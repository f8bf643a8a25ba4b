"""Users' own services on the gRPC port: `[mlbridge]` of the configuration."""

import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence

import grpc
import grpc.aio

from policybridge_core.errors import InvalidError, PolicyBridgeError, UnsupportedError
from policybridge_server.access import Scope
from policybridge_server.config import convert_fields
from policybridge_server.grpc.calls import Calls, Context, add_handlers
from policybridge_server.mlbridge.grpc.config import MethodConfig, MlBridgeConfig
from policybridge_server.mlbridge.grpc.descriptors import ForeignMethod, load_methods
from policybridge_server.mlbridge.grpc.handler import MethodHandler
from policybridge_server.mlbridge.grpc.replies import UnreadableReplyError
from policybridge_server.transports.contract import Host

_LOG = logging.getLogger(__name__)

_Call = Callable[[bytes, Context], Awaitable[bytes]]


def add_to_server(server: grpc.aio.Server, host: Host, calls: Calls) -> None:
    """Serve every unary method of the configured services; none without ``[mlbridge]``.

    A method whose reply the client cannot read is left out: its calls and the log get the reason.

    Raises:
        PolicyBridgeError: a source, or the configuration of a method, cannot be used; the message names it.

    """
    if host.config.mlbridge is None:
        return
    config = convert_fields(host.config.mlbridge, MlBridgeConfig, "[mlbridge] ")
    handlers: dict[str, dict[str, grpc.RpcMethodHandler[bytes, bytes]]] = defaultdict(dict)
    for foreign, how in _served(config, load_methods(config.protos, config.descriptors)):
        # Bytes in and out: a request that is sent again is known by them.
        call = _call(foreign, how, host, calls, config.max_sessions)
        handlers[foreign.service][foreign.name] = grpc.unary_unary_rpc_method_handler(call)
    for service, methods in handlers.items():
        host.access.scopes[f"/{service}/"] = Scope.EVALUATE
        add_handlers(server, calls, service, methods)


def _served(config: MlBridgeConfig, methods: Sequence[ForeignMethod]) -> list[tuple[ForeignMethod, MethodConfig]]:
    _check_names("services", config.services, {method.service for method in methods})
    _check_names("methods", config.methods, {str(method) for method in methods})
    configured = [(method, config.method(method.service, method.name)) for method in methods]
    return [(method, how) for method, how in configured if how.serve is not False]


def _check_names(table: str, configured: dict[str, MethodConfig], existing: set[str]) -> None:
    for name in configured:
        if name not in existing:
            known = ", ".join(sorted(existing)) or "none"
            raise InvalidError(f"[mlbridge.{table}] {name!r} is in none of the sources; there are {known}")


def _call(foreign: ForeignMethod, config: MethodConfig, host: Host, calls: Calls, most: int) -> _Call:
    try:
        method = MethodHandler(foreign, config, host, calls, most)
    except UnreadableReplyError as error:
        # Not the operator's fault: protos often have methods that are not for ML-Compiler-Bridge.
        _LOG.warning("%s is not served: %s. `serve = false` in [mlbridge.methods] leaves it out", foreign, error)
        return _refusing(f"{foreign} is not served: {error}")
    except PolicyBridgeError as error:
        raise InvalidError(f"[mlbridge] {foreign} cannot be served: {error}") from error
    method.check()
    return method.call


def _refusing(reason: str) -> _Call:
    async def refuse(data: bytes, context: Context) -> bytes:  # noqa: ARG001
        raise UnsupportedError(reason)

    return refuse
