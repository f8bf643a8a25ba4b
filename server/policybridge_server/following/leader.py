"""The source of a replica: a leader, over gRPC."""

import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol, cast
from uuid import uuid4

from policybridge.v1 import replication_service_pb2 as pb
from policybridge.v1.repository_service_pb2 import FileChunk
from policybridge_core.plugins import load_part
from policybridge_serdes import PolicyVersion
from policybridge_serdes.messages import version_to_pb
from policybridge_server.config import ServerConfig
from policybridge_server.following.source import SourceChange
from policybridge_server.following.state import MOST_LACKS, Lack, lack_to_pb, state_from_pb
from policybridge_server.repository.files import replace_file
from policybridge_server.repository.numbers import MOST_KEPT
from policybridge_server.repository.staging import Staging

_ID = ".replica"


class _Link(Protocol):
    def follow(self, hello: pb.Hello) -> Iterator[pb.FollowResponse]: ...

    def adopted(self, adopted: pb.Adopted) -> None: ...

    def download(self, request: pb.DownloadRequest) -> Iterator[FileChunk]: ...

    def close(self) -> None: ...


class LeaderSource:
    """See `Source`.

    Args:
        config: the leader's address, and the credentials for it.
        folder: the folder of the copies, which has this replica's own id.

    Raises:
        PolicyBridgeError: the address or a file of the credentials cannot be used.

    """

    polled = False

    def __init__(self, config: ServerConfig, folder: Path) -> None:
        self.name = f"the leader {config.follow}"
        self._own_name = " ".join([socket.gethostname(), *(f"{name}:{each}" for name, each in config.addresses())])
        self._id = _id(folder)
        made = cast("Callable[..., _Link]", load_part("policybridge_client.leader:LeaderLink", "--follow"))
        files = (config.follow_ca, config.follow_certificate, config.follow_key, config.follow_token_file)
        self._link = made(config.follow, *files)

    def changes(self) -> Iterator[SourceChange]:
        """Yield the leader's changes."""
        for response in self._link.follow(pb.Hello(id=self._id, name=self._own_name)):
            yield SourceChange([state_from_pb(policy) for policy in response.policies], response.revision)

    def fetch(self, policy: str, number: int, digest: str, staging: Staging) -> None:
        """Write the files of a version."""
        version = version_to_pb(PolicyVersion(policy, number, digest))
        for chunk in self._link.download(pb.DownloadRequest(version=version)):
            staging.write(chunk.path, chunk.data)

    def adopted(self, revision: int, lacks: Sequence[Lack], kept: Sequence[tuple[PolicyVersion, str]]) -> None:
        """Tell the leader."""
        told = [pb.Kept(version=version_to_pb(version), epoch=epoch) for version, epoch in kept[:MOST_KEPT]]
        self._link.adopted(pb.Adopted(revision=revision, lacks=map(lack_to_pb, lacks[:MOST_LACKS]), kept=told))

    def close(self) -> None:
        """End the calls."""
        self._link.close()


def _id(folder: Path) -> str:
    """Give the id of the replica whose copies are in ``folder``: the leader recognises it after a restart."""
    file = folder / _ID
    if not file.is_file():
        replace_file(file, uuid4().hex.encode())
    return file.read_text()
