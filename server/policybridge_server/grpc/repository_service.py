"""The RepositoryService by the publisher; its .proto describes each call."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any, Literal, TypeVar

import grpc.aio

from policybridge.v1 import repository_service_pb2 as pb
from policybridge.v1 import tensor_pb2
from policybridge.v1.repository_service_pb2_grpc import add_RepositoryServiceServicer_to_server
from policybridge_core.errors import InvalidError, PreconditionError
from policybridge_core.text import without_paths
from policybridge_serdes import Layout
from policybridge_serdes.messages import reference_from_pb, version_to_pb
from policybridge_serdes.protobuf import spec_to_pb
from policybridge_server.grpc.calls import Calls, Method, add_service
from policybridge_server.publishing.descriptions import VersionDescription
from policybridge_server.publishing.publisher import Publisher
from policybridge_server.publishing.rollouts import Back, Wanted
from policybridge_server.repository import LATEST, StoredPolicy
from policybridge_server.repository.rollout import FILES, Rollout
from policybridge_server.transports.contract import Host

_Given = TypeVar("_Given")


def add_to_server(server: grpc.aio.Server, host: Host, calls: Calls) -> None:
    """Serve RepositoryService on ``server``."""
    methods = _Methods(host.publisher)
    by_name: dict[str, Method] = {
        "Publish": methods.publish,
        "PublishWeights": methods.publish_weights,
        "SetAlias": methods.set_alias,
        "Retire": methods.retire,
        "Rollout": methods.rollout,
        "EndRollout": methods.end_rollout,
        "Rollback": methods.roll_back,
        "ListPolicies": methods.list_policies,
        "ShowPolicy": methods.show_policy,
    }
    add_service(add_RepositoryServiceServicer_to_server, by_name, server, calls)


class _Methods:
    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher

    async def publish(self, requests: AsyncIterator[pb.PublishRequest]) -> pb.PublishResponse:
        first = await anext(requests, None)
        if first is None or first.WhichOneof("message") != "header":
            raise PreconditionError("the first message of a publication is `header`")
        header = first.header
        version = await self._publisher.publish(
            header.policy,
            header.config,
            _pieces(requests),
            header.digest,
            list(header.aliases),
            adopted=header.adopted or None,
        )
        return pb.PublishResponse(version=version_to_pb(version))

    async def publish_weights(self, requests: AsyncIterator[pb.PublishWeightsRequest]) -> pb.PublishResponse:
        first = await anext(requests, None)
        if first is None or not first.HasField("base"):
            raise PreconditionError("the first message of weights names their `base`")
        base, weights = reference_from_pb(first.base), _weights(first, requests)
        version = await self._publisher.publish_weights(base, weights, list(first.aliases))
        return pb.PublishResponse(version=version_to_pb(version))

    async def set_alias(self, request: pb.SetAliasRequest) -> pb.SetAliasResponse:
        setting = self._publisher.set_alias(request.policy, request.alias, request.version)
        return pb.SetAliasResponse(previous=await _to_its_end(setting))

    async def retire(self, request: pb.RetireRequest) -> pb.RetireResponse:
        await _to_its_end(self._publisher.retire(request.policy, request.version))
        return pb.RetireResponse()

    async def rollout(self, request: pb.RolloutRequest) -> pb.RolloutResponse:
        wanted = Wanted(
            request.version,
            request.share,
            request.alias or LATEST,
            tuple(request.promote_if),
            tuple(request.withdraw_if),
            request.files or FILES,
        )
        rollout = await _to_its_end(self._publisher.rollouts.begin(request.policy, wanted))
        return pb.RolloutResponse(rollout=_rollout(rollout))

    async def end_rollout(self, request: pb.EndRolloutRequest) -> pb.EndRolloutResponse:
        state: Literal["promoted", "withdrawn"] = "promoted" if request.promote else "withdrawn"
        ending = self._publisher.rollouts.end(request.policy, state, request.reason, version=request.version or None)
        return pb.EndRolloutResponse(rollout=_rollout(await _to_its_end(ending)))

    async def roll_back(self, request: pb.RollbackRequest) -> pb.RollbackResponse:
        back = Back(request.to or None, request.leaves or None, request.reason)
        rollout = await _to_its_end(self._publisher.rollouts.roll_back(request.policy, back))
        return pb.RollbackResponse(rollout=_rollout(rollout))

    def list_policies(self, _: pb.ListPoliciesRequest) -> pb.ListPoliciesResponse:
        return pb.ListPoliciesResponse(policies=map(_summary, self._publisher.policies()))

    async def show_policy(self, request: pb.ShowPolicyRequest) -> pb.ShowPolicyResponse:
        policy, versions = await self._publisher.describe(request.policy)
        rollout = None if policy.rollout is None else _rollout(policy.rollout)
        if rollout is not None and policy.rollout is not None and policy.rollout.running:
            rollout.progress = await self._publisher.progress(policy.name)
        return pb.ShowPolicyResponse(
            summary=_summary(policy), aliases=policy.aliases, versions=map(_details, versions), rollout=rollout
        )


async def _pieces(requests: AsyncIterator[pb.PublishRequest]) -> AsyncIterator[tuple[str, bytes]]:
    async for request in requests:
        if request.WhichOneof("message") != "chunk":
            raise InvalidError("after `header` come `chunk`s")
        yield request.chunk.path, request.chunk.data


async def _weights(
    first: pb.PublishWeightsRequest, requests: AsyncIterator[pb.PublishWeightsRequest]
) -> AsyncIterator[bytes]:
    yield first.safetensors
    async for request in requests:
        yield request.safetensors


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
        error=without_paths(str(policy.config) if broken else refused),
    )


def _rollout(rollout: Rollout) -> pb.Rollout:
    return pb.Rollout(
        version=rollout.version,
        base=rollout.base,
        share=rollout.share,
        alias=rollout.alias,
        promote_if=rollout.promote_if,
        withdraw_if=rollout.withdraw_if,
        files=rollout.files,
        state=rollout.state,
        reason=without_paths(rollout.reason),
        begun=rollout.begun,
        ended=rollout.ended,
        withdrawn=rollout.withdrawn,
    )


def _details(version: VersionDescription) -> pb.VersionDetails:
    details = pb.VersionDetails(
        version=version_to_pb(version.policy),
        bytes=version.bytes,
        sessions=version.sessions,
        error=without_paths(version.error),
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
