"""Reflection: the services and their messages, for tools such as grpcurl."""

from typing import Final

import grpc.aio
from grpc_channelz.v1 import channelz_pb2
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2_grpc
from grpc_reflection.v1alpha._async import ReflectionServicer

from policybridge.inference import inference_service_pb2
from policybridge.v1 import policy_service_pb2, repository_service_pb2
from policybridge_server.grpc.calls import Calls
from policybridge_server.transports.contract import Host

_FILES: Final = (health_pb2, inference_service_pb2, policy_service_pb2, repository_service_pb2)
_CHANNELZ: Final = channelz_pb2.DESCRIPTOR.services_by_name["Channelz"].full_name


def service_names() -> list[str]:
    """Name the services with built-in messages, without those of a user's own .proto."""
    return [service.full_name for file in _FILES for service in file.DESCRIPTOR.services_by_name.values()]


def add_to_server(server: grpc.aio.Server, host: Host, calls: Calls) -> None:  # noqa: ARG001
    """Serve grpc.reflection.v1alpha.ServerReflection on ``server``."""
    names = [*service_names(), reflection.SERVICE_NAME]
    if isinstance(server, grpc.aio.Server):
        names.append(_CHANNELZ)
    servicer = ReflectionServicer(names)
    reflection_pb2_grpc.add_ServerReflectionServicer_to_server(servicer, server)
