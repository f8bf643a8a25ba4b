"""The table of the services on a gRPC port."""

from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from policybridge_core.plugins import Table
from policybridge_server.grpc.guard import SCOPES
from policybridge_server.transports.contract import Host

if TYPE_CHECKING:
    import grpc.aio

    from policybridge_server.grpc.calls import Calls

    AddService = Callable[[grpc.aio.Server, Host, Calls], None]
    """Adds one service to a server that has not started; a drain waits for the calls counted in ``Calls``.

    If the server asks for tokens, a service of another distribution needs the scope ``admin``, unless it sets
    another in ``host.access.scopes``: ``host.access.scopes["/my.Service/"] = Scope.EVALUATE``.
    """

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
        "replication": "policybridge_server.grpc.replication_service:add_to_server [server]",
        "repository": "policybridge_server.grpc.repository_service:add_to_server [server]",
    },
)


def add_services(server: "grpc.aio.Server", host: Host, calls: "Calls") -> None:
    """Add the services that the configuration names to ``server``: without any name, all of them.

    Raises:
        NotFoundError: no service has such a name.
        PolicyBridgeError: a service cannot be served with its configuration.

    """
    host.access.scopes.update(SCOPES)
    for name in host.config.grpc_service or SERVICES.names():
        cast("AddService", SERVICES.load(name))(server, host, calls)
