"""Health: whether new sessions are taken, of the server as a whole and of each policy."""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

import grpc.aio
from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1.health_pb2_grpc import add_HealthServicer_to_server

from policybridge_core.errors import NotFoundError, PolicyBridgeError
from policybridge_core.session import check_length
from policybridge_serdes import PolicyReference
from policybridge_server.engine.opener import SessionOpener
from policybridge_server.grpc.calls import Calls, add_service
from policybridge_server.grpc.reflection import service_names
from policybridge_server.transports.contract import Host

_LOOK_SECONDS: Final = 0.25
"""Seconds between two checks for a watching client, because changes of policies are not announced."""

_SERVING: Final[int] = pb.HealthCheckResponse.SERVING
_NOT_SERVING: Final[int] = pb.HealthCheckResponse.NOT_SERVING


def add_to_server(server: grpc.aio.Server, host: Host, calls: Calls) -> None:  # noqa: ARG001
    """Serve grpc.health.v1.Health on ``server``; a drain does not wait for watching clients."""
    health = _Health(host.opener)
    methods = {"Check": health.check, "List": health.list, "Watch": health.watch}
    add_service(add_HealthServicer_to_server, methods, server, None)


class _Health:
    def __init__(self, opener: SessionOpener) -> None:
        self._opener = opener
        self._repository = opener.engine.repository

    def check(self, request: pb.HealthCheckRequest) -> pb.HealthCheckResponse:
        """Give the status of a policy or a service; of the server for the empty name."""
        check_length(request.service, "the name of a service")
        status = self._status(request.service)
        if status is None:
            # It does not name those there are: this method needs no token.
            raise NotFoundError(f"no policy or service {request.service!r}")
        return pb.HealthCheckResponse(status=status)

    def list(self, _: "pb.HealthListRequest") -> "pb.HealthListResponse":
        names = ["", *service_names(), *self._repository.policies()]
        statuses = {name: pb.HealthCheckResponse(status=self._status(name)) for name in names}
        return pb.HealthListResponse(statuses=statuses)

    async def watch(self, request: pb.HealthCheckRequest) -> AsyncIterator[pb.HealthCheckResponse]:
        """Give the status now and whenever it changes."""
        told = None
        while True:
            status = self._status(request.service)
            status = pb.HealthCheckResponse.SERVICE_UNKNOWN if status is None else status
            if status != told:
                told = status
                yield pb.HealthCheckResponse(status=status)
            await asyncio.sleep(_LOOK_SECONDS)

    def _status(self, name: str) -> int | None:
        if name not in ("", *service_names(), *self._repository.policies()):
            return None
        try:
            self._opener.check_open()
            if not name:
                self._opener.check_ready()
            if name in self._repository.policies():
                loaded = self._opener.engine.loaded(PolicyReference(name))
                if loaded is not None and loaded.trouble:
                    return _NOT_SERVING
        except PolicyBridgeError:
            return _NOT_SERVING
        return _SERVING
