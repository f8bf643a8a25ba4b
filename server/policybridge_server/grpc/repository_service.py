"""The RepositoryService in terms of the publisher; see its .proto for what each call does."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

import grpc.aio

from policybridge.v1 import repository_service_pb2 as pb
from policybridge.v1 import tensor_pb2
from policybridge.v1.repository_service_pb2_grpc import (
    RepositoryServiceServicer,
    add_RepositoryServiceServicer_to_server,
)
from policybridge_core.errors import InvalidError, PreconditionError, TooLargeError
from policybridge_serdes import Layout
from policybridge_serdes.protobuf import spec_to_pb
from policybridge_server.grpc.calls import Calls, Context
from policybridge_server.grpc.messages import reference_from_pb, version_to_pb
from policybridge_server.publishing.publisher import Publisher, VersionDescription
from policybridge_server.repository import StoredPolicy
from policybridge_server.transports.contract import Host

_Given = TypeVar("_Given")


class RepositoryServicer(RepositoryServiceServicer):
    """Serves one port.

    Args:
        publisher: does it.
        calls: those of the port, which are waited for when the server stops.

    """

    def __init__(self, publisher: Publisher, calls: Calls) -> None:
        self._publisher = publisher
        self._calls = calls

    async def Publish(  # noqa: N802
        self, requests: AsyncIterator[pb.PublishRequest], context: Context
    ) -> pb.PublishResponse:
        """Take a version's files."""
        async with self._calls.mapped(context):
            first = await anext(requests, None)
            if first is None or first.WhichOneof("message") != "header":
                raise PreconditionError("the first message of a publication is `header`")
            header = first.header
            version = await self._publisher.publish(
                header.policy, header.config, _pieces(requests), header.digest, list(header.aliases)
            )
            return pb.PublishResponse(version=version_to_pb(version))
        raise AssertionError("abort always raises")

    async def PublishWeights(  # noqa: N802
        self, requests: AsyncIterator[pb.PublishWeightsRequest], context: Context
    ) -> pb.PublishResponse:
        """Take tensors for the files of another version."""
        async with self._calls.mapped(context):
            first = await anext(requests, None)
            if first is None or not first.HasField("base"):
                raise PreconditionError("the first message of weights names their `base`")
            pieces = [first.safetensors]
            async for request in requests:
                pieces.append(request.safetensors)
                if sum(map(len, pieces)) > self._publisher.limits.bytes:
                    raise TooLargeError(f"more than {self._publisher.limits.bytes} bytes; the operator allows no more")
            base, weights = reference_from_pb(first.base), b"".join(pieces)
            version = await self._publisher.publish_weights(base, weights, list(first.aliases))
            return pb.PublishResponse(version=version_to_pb(version))
        raise AssertionError("abort always raises")

    async def SetAlias(self, request: pb.SetAliasRequest, context: Context) -> pb.SetAliasResponse:  # noqa: N802
        """Promote a version, or roll back."""
        async with self._calls.mapped(context):
            setting = self._publisher.set_alias(request.policy, request.alias, request.version)
            return pb.SetAliasResponse(previous=await _to_its_end(setting))
        raise AssertionError("abort always raises")

    async def Retire(self, request: pb.RetireRequest, context: Context) -> pb.RetireResponse:  # noqa: N802
        """Let a version go."""
        async with self._calls.mapped(context):
            await _to_its_end(self._publisher.retire(request.policy, request.version))
            return pb.RetireResponse()
        raise AssertionError("abort always raises")

    async def ListPolicies(  # noqa: N802
        self, _: pb.ListPoliciesRequest, context: Context
    ) -> pb.ListPoliciesResponse:
        """Sum all policies up."""
        async with self._calls.mapped(context):
            return pb.ListPoliciesResponse(policies=map(_summary, self._publisher.policies()))
        raise AssertionError("abort always raises")

    async def ShowPolicy(  # noqa: N802
        self, request: pb.ShowPolicyRequest, context: Context
    ) -> pb.ShowPolicyResponse:
        """Describe one policy and its versions."""
        async with self._calls.mapped(context):
            policy, versions = await self._publisher.describe(request.policy)
            return pb.ShowPolicyResponse(
                summary=_summary(policy), aliases=policy.aliases, versions=map(_details, versions)
            )
        raise AssertionError("abort always raises")


def add_to_server(server: grpc.aio.Server, host: Host, calls: Calls) -> None:
    """Serve RepositoryService on ``server``."""
    add_RepositoryServiceServicer_to_server(RepositoryServicer(host.publisher, calls), server)


async def _pieces(requests: AsyncIterator[pb.PublishRequest]) -> AsyncIterator[tuple[str, bytes]]:
    async for request in requests:
        if request.WhichOneof("message") != "chunk":
            raise InvalidError("after `header` come `chunk`s")
        yield request.chunk.path, request.chunk.data


async def _to_its_end(work: Coroutine[Any, Any, _Given]) -> _Given:
    """Finish ``work`` even if the client cancels the call: half of a change must not stay."""
    return await asyncio.shield(asyncio.get_running_loop().create_task(work))


def _summary(policy: StoredPolicy) -> pb.PolicySummary:
    broken = isinstance(policy.config, PreconditionError)
    refused = str(policy.refused[max(policy.refused)]) if policy.refused and not policy.versions else ""
    return pb.PolicySummary(
        name=policy.name,
        description="" if broken else policy.usable.description,
        backend="" if broken else policy.usable.backend,
        latest=policy.latest or 0,
        versions=len(policy.versions),
        error=str(policy.config) if broken else refused,
    )


def _details(version: VersionDescription) -> pb.VersionDetails:
    details = pb.VersionDetails(
        version=version_to_pb(version.policy), bytes=version.bytes, sessions=version.sessions, error=version.error
    )
    if version.signature is not None:
        details.loaded = True
        features = version.signature.features or Layout(())
        advice = version.signature.advice
        details.signature.CopyFrom(
            tensor_pb2.Signature(
                features=map(spec_to_pb, features.specs), advice=spec_to_pb(advice) if advice else None
            )
        )
    return details
