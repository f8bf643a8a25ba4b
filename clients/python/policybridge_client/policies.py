"""A client of the server's RepositoryService: publish versions, set aliases, retire versions, list policies."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
import msgspec
import numpy.typing as npt

from policybridge.v1 import policy_service_pb2
from policybridge.v1 import repository_service_pb2 as pb
from policybridge.v1.repository_service_pb2_grpc import RepositoryServiceStub
from policybridge_client.grpc_stream import error_of
from policybridge_core.digest import digest, version_files
from policybridge_core.errors import InvalidError
from policybridge_serdes import PolicyReference, PolicyVersion
from policybridge_serdes.protobuf import spec_from_pb

_PIECE: Final = 256 << 10
_SAFETENSORS: Final = {
    "f2": "F16", "f4": "F32", "f8": "F64", "b1": "BOOL",
    **{f"{sign.lower()}{size}": f"{sign}{size * 8}" for sign in "IU" for size in (1, 2, 4, 8)},
}  # fmt: skip
_Given = TypeVar("_Given")


class PolicySummary(msgspec.Struct, frozen=True):
    """One policy; ``error`` says why it is not served, and is empty if it is."""

    name: str
    description: str
    backend: str
    latest: int
    versions: int
    error: str


class VersionDetails(msgspec.Struct, frozen=True):
    """One version: the size of its files, whether it is loaded, its number of sessions, and its signature."""

    version: int
    digest: str
    bytes: int
    loaded: bool
    sessions: int
    features: list[str]
    advice: str
    error: str


class PolicyDetails(msgspec.Struct, frozen=True):
    """One policy with its aliases and its versions, the newest first."""

    summary: PolicySummary
    aliases: dict[str, int]
    versions: list[VersionDetails]


class RepositoryClient:
    """The RepositoryService of one server.

    Args:
        address: ``grpc:HOST:PORT`` or ``grpc:unix:PATH``; ``grpc:`` may be left out.
        timeout: limit of each call, in seconds. A call that publishes includes loading the version.

    """

    def __init__(self, address: str, *, timeout: float = 60.0) -> None:
        if address.startswith("socket:"):
            raise InvalidError(f"{address} is a socket for compilers; policies are published over gRPC")
        self._target = address.removeprefix("grpc:")
        self._timeout = timeout
        self._channel = grpc.insecure_channel(self._target, options=[("grpc.enable_http_proxy", 0)])
        self._stub = RepositoryServiceStub(self._channel)

    def publish(self, policy: str, files: Path, *, config: str = "", aliases: Sequence[str] = ()) -> PolicyVersion:
        """Publish a version; return it as soon as new sessions get it.

        Args:
            policy: the policy's name.
            files: a folder of the version's files.
            config: the text of ``policy.toml``, for a new policy.
            aliases: names that the version gets.

        Raises:
            PolicyBridgeError: the version is refused; the message says why. The previous version stays in service.

        """
        if not files.is_dir():
            raise InvalidError(f"{files} is no folder; a version is a folder of files")
        header = pb.PublishHeader(policy=policy, config=config, digest=digest(files), aliases=aliases)
        return _version(self._call(self._stub.Publish, _messages(header, files)).version)

    def publish_weights(
        self, base: PolicyReference, weights: bytes | Mapping[str, npt.NDArray[Any]], *, aliases: Sequence[str] = ()
    ) -> PolicyVersion:
        """Publish the version ``base`` with other weights: tensors by name, as arrays or in safetensors.

        Raises:
            PolicyBridgeError: the version is refused; the message says why. The previous version stays in service.

        """
        data = weights if isinstance(weights, bytes) else save_weights(weights)
        return _version(self._call(self._stub.PublishWeights, _weights(base, data, aliases)).version)

    def set_alias(self, policy: str, alias: str, version: int) -> int | None:
        """Point ``alias`` to ``version``; return the version that it pointed to before.

        Raises:
            PolicyBridgeError: there is no such policy or version, or the server does not allow it.

        """
        response = self._call(self._stub.SetAlias, pb.SetAliasRequest(policy=policy, alias=alias, version=version))
        return response.previous if response.HasField("previous") else None

    def retire(self, policy: str, version: int) -> None:
        """Retire ``version``: it is removed when its last session has ended.

        Raises:
            PolicyBridgeError: an alias points to it, there is no such version, or the server does not allow it.

        """
        self._call(self._stub.Retire, pb.RetireRequest(policy=policy, version=version))

    def policies(self) -> list[PolicySummary]:
        """List all policies."""
        response = self._call(self._stub.ListPolicies, pb.ListPoliciesRequest())
        return [_summary(each) for each in response.policies]

    def show(self, policy: str) -> PolicyDetails:
        """Describe one policy.

        Raises:
            NotFoundError: no policy has this name.

        """
        response = self._call(self._stub.ShowPolicy, pb.ShowPolicyRequest(policy=policy))
        versions = [_details(each) for each in response.versions]
        return PolicyDetails(_summary(response.summary), dict(response.aliases), versions)

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def _call(self, method: Any, request: Any) -> Any:
        try:
            return method(request, timeout=self._timeout)
        except grpc.RpcError as failure:
            raise error_of(failure, self._target) from failure


def save_weights(tensors: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Encode ``tensors`` in the safetensors format.

    Raises:
        InvalidError: a tensor has a type that safetensors does not support.

    """
    header: dict[str, object] = {}
    pieces: list[bytes] = []
    end = 0
    for name, tensor in tensors.items():
        kind = _SAFETENSORS.get(tensor.dtype.str[1:])
        if kind is None:
            raise InvalidError(f"{name} is of type {tensor.dtype}, which safetensors does not know")
        pieces.append(tensor.astype(tensor.dtype.newbyteorder("<")).tobytes())
        header[name] = {"dtype": kind, "shape": tensor.shape, "data_offsets": (end, end + len(pieces[-1]))}
        end += len(pieces[-1])
    text = msgspec.json.encode(header)
    text += b" " * (-len(text) % 8)
    return b"".join((len(text).to_bytes(8, "little"), text, *pieces))


def _messages(header: pb.PublishHeader, folder: Path) -> Iterator[pb.PublishRequest]:
    yield pb.PublishRequest(header=header)
    for file in version_files(folder):
        path = file.relative_to(folder).as_posix()
        with file.open("rb") as content:
            piece = content.read(_PIECE)
            yield pb.PublishRequest(chunk=pb.FileChunk(path=path, data=piece))
            while piece := content.read(_PIECE):
                yield pb.PublishRequest(chunk=pb.FileChunk(path=path, data=piece))


def _weights(base: PolicyReference, data: bytes, aliases: Sequence[str]) -> Iterator[pb.PublishWeightsRequest]:
    which = policy_service_pb2.PolicyReference(name=base.name)
    if base.version is not None:
        which.version = base.version
    if base.alias is not None:
        which.alias = base.alias
    yield pb.PublishWeightsRequest(base=which, aliases=aliases, safetensors=data[:_PIECE])
    for start in range(_PIECE, len(data), _PIECE):
        yield pb.PublishWeightsRequest(safetensors=data[start : start + _PIECE])


def _version(message: policy_service_pb2.PolicyVersion) -> PolicyVersion:
    return PolicyVersion(message.name, message.version, message.digest)


def _summary(message: pb.PolicySummary) -> PolicySummary:
    return PolicySummary(
        message.name, message.description, message.backend, message.latest, message.versions, message.error
    )


def _details(message: pb.VersionDetails) -> VersionDetails:
    signature = message.signature
    return VersionDetails(
        message.version.version,
        message.version.digest,
        message.bytes,
        message.loaded,
        message.sessions,
        [str(spec_from_pb(spec)) for spec in signature.features],
        str(spec_from_pb(signature.advice)) if signature.HasField("advice") else "",
        message.error,
    )
