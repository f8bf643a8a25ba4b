"""The ReplicationService, from a leader to its replicas; its .proto describes each call."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import grpc.aio

from policybridge.v1 import replication_service_pb2 as pb
from policybridge.v1.replication_service_pb2_grpc import add_ReplicationServiceServicer_to_server
from policybridge.v1.repository_service_pb2 import FileChunk
from policybridge_core.digest import version_files
from policybridge_core.errors import InvalidError, NotFoundError, PreconditionError
from policybridge_core.text import PeerText, without_paths
from policybridge_serdes import PolicyReference
from policybridge_serdes.messages import version_from_pb, version_to_pb
from policybridge_server.following.replicas import Replica, Replicas, WaitFor
from policybridge_server.following.state import MOST_LACKS, lack_from_pb, lack_to_pb, state_to_pb
from policybridge_server.grpc.calls import Calls, Method, add_service
from policybridge_server.publishing.publisher import Publisher
from policybridge_server.repository import Repository, StoredPolicy
from policybridge_server.repository.numbers import MOST_KEPT, is_digest
from policybridge_server.transports.contract import Host

_PIECE: Final = 256 << 10
_LONGEST_WAIT: Final = 600.0
_WAITS: Final = {
    pb.WAIT_FOR_NONE: WaitFor.NONE,
    pb.WAIT_FOR_MOST: WaitFor.MOST,
    pb.WAIT_FOR_ALL: WaitFor.ALL,
}


def add_to_server(server: grpc.aio.Server, host: Host, calls: Calls) -> None:  # noqa: ARG001
    """Serve ReplicationService on ``server``."""
    repository = host.opener.engine.repository
    methods = _Methods(repository, replicas_of(host), host.publisher)
    by_name: dict[str, Method] = {
        "Follow": methods.follow,
        "Download": methods.download,
        "Replicas": methods.replicas,
    }
    # A drain does not wait for replicas, because they stay for ever.
    add_service(add_ReplicationServiceServicer_to_server, by_name, server, None)


def replicas_of(host: Host) -> Replicas:
    """Return the replicas of this process; their `wait` covers those of the whole server."""
    peers = host.publisher.peers
    return host.shared(Replicas, lambda: Replicas(host.opener.engine.repository, lambda: peers.gather("replicas")))


class _Methods:
    def __init__(self, repository: Repository, replicas: Replicas, publisher: Publisher) -> None:
        self._publisher = publisher
        self._repository = repository
        self._replicas = replicas

    async def follow(self, requests: AsyncIterator[pb.FollowRequest]) -> AsyncIterator[pb.FollowResponse]:
        first = await anext(requests, None)
        if first is None or first.WhichOneof("message") != "hello" or not first.hello.id:
            raise InvalidError("the first message of a replica is `hello`, with its id")
        changed = asyncio.Event()
        forget = self._repository.on_change(changed.set)
        try:
            with self._replicas.joined(PeerText(first.hello.id), PeerText(first.hello.name)) as replica:
                reading = asyncio.create_task(self._read(requests, replica))
                reading.add_done_callback(lambda _: changed.set())
                try:
                    sent = -1
                    while not reading.done():
                        changed.clear()
                        revision = self._repository.revision
                        if revision > sent:
                            yield self._change(sent, revision)
                            sent = revision
                        await changed.wait()
                    reading.result()
                finally:
                    reading.cancel()
        finally:
            forget()

    async def _read(self, requests: AsyncIterator[pb.FollowRequest], replica: Replica) -> None:
        async for request in requests:
            if request.HasField("adopted"):
                lacks = [lack_from_pb(lack) for lack in request.adopted.lacks[:MOST_LACKS]]
                told = [(version_from_pb(each.version), each.epoch) for each in request.adopted.kept[:MOST_KEPT]]
                # Of policies that this server has, so that no text of a replica's own is kept.
                kept = [each for each in told if self._repository.find(each[0].name) and is_digest(each[0].digest)]
                self._replicas.adopted(replica, request.adopted.revision, lacks, [version for version, _ in kept])
                await self._publisher.numbering.heard(kept)

    def _change(self, sent: int, revision: int) -> pb.FollowResponse:
        policies = [policy for policy in self._repository.changed_since(sent) if self._is_followed(policy)]
        return pb.FollowResponse(revision=revision, policies=map(state_to_pb, policies))

    def _is_followed(self, policy: StoredPolicy) -> bool:
        # Every server has the policies of the package itself.
        mine = policy.folder.parent in self._repository.writable
        return mine and not isinstance(policy.config, PreconditionError)

    async def download(self, request: pb.DownloadRequest) -> AsyncIterator[FileChunk]:
        wanted = version_from_pb(request.version)
        stored = self._repository.resolve(PolicyReference(wanted.name, wanted.version))
        if not self._is_followed(self._repository.policy(wanted.name)):
            raise NotFoundError(f"{stored} is part of the package, which every server has")
        if stored.policy != wanted:
            raise NotFoundError(f"{stored} has the digest {stored.policy.digest} here, not {wanted.digest}")
        for file in await asyncio.to_thread(version_files, stored.folder):
            async for chunk in _chunks(file, file.relative_to(stored.folder).as_posix()):
                yield chunk

    async def replicas(self, request: pb.ReplicasRequest) -> pb.ReplicasResponse:
        wanted = _WAITS.get(request.wait_for)
        if wanted is None or not 0 <= request.seconds <= _LONGEST_WAIT:
            raise InvalidError(f"wait for none, most or all of the replicas, for 0 to {_LONGEST_WAIT:g} seconds")
        waited = await self._replicas.wait(wanted, request.seconds)
        return pb.ReplicasResponse(met=waited.met, replicas=[_replica(*each) for each in waited.replicas])


async def _chunks(file: Path, path: str) -> AsyncIterator[FileChunk]:
    try:
        opened = await asyncio.to_thread(file.open, "rb")
    except OSError as error:
        raise NotFoundError(f"{path} no longer exists") from error
    with opened:
        # An empty file has one piece, too.
        piece = await asyncio.to_thread(opened.read, _PIECE)
        while True:
            yield FileChunk(path=path, data=piece)
            piece = await asyncio.to_thread(opened.read, _PIECE)
            if not piece:
                return


def _replica(replica: Replica, is_current: bool) -> pb.Replica:
    lacks = [lack_to_pb(lack) for lack in replica.lacks]
    for lack in lacks:
        lack.reason = without_paths(lack.reason)
    kept = map(version_to_pb, replica.kept)
    return pb.Replica(name=replica.name, current=is_current, away_seconds=replica.away, lacks=lacks, kept=kept)
