"""A client of the server's RepositoryService: publish versions, set aliases, retire versions, list policies."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import grpc
import msgspec
import numpy.typing as npt

from policybridge.v1 import repository_service_pb2 as pb
from policybridge.v1.replication_service_pb2 import DownloadRequest
from policybridge.v1.replication_service_pb2_grpc import ReplicationServiceStub
from policybridge.v1.repository_service_pb2_grpc import RepositoryServiceStub
from policybridge_client.credentials import Credentials
from policybridge_client.downloads import receive_files
from policybridge_client.grpc_channel import ask, close_channel, open_channel, split_address, token_metadata, was_closed
from policybridge_client.grpc_stream import error_of
from policybridge_client.replicas import Replicas, WaitFor, ask_replicas
from policybridge_core.closing import Closing
from policybridge_core.digest import digest, version_files
from policybridge_core.errors import InvalidError, NotFoundError
from policybridge_serdes import PolicyReference, PolicyVersion
from policybridge_serdes.messages import reference_to_pb, version_from_pb, version_to_pb
from policybridge_serdes.protobuf import spec_from_pb

_PIECE: Final = 256 << 10
_SAFETENSORS: Final = {
    "f2": "F16", "f4": "F32", "f8": "F64", "b1": "BOOL",
    **{f"{sign.lower()}{size}": f"{sign}{size * 8}" for sign in "IU" for size in (1, 2, 4, 8)},
}  # fmt: skip
_Given = TypeVar("_Given")


class PolicySummary(msgspec.Struct, frozen=True):
    """One policy; ``error`` is the reason if it is not served, else empty."""

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


class Rollout(msgspec.Struct, frozen=True):
    """A roll-out: a share of the new sessions of ``alias`` gets ``version``, the others ``base``.

    ``state`` is ``running``, ``promoted`` or ``withdrawn``; ``reason`` is its reason, or the last comparison.
    ``begun`` and ``ended`` are seconds since 1970. ``withdrawn`` are further versions that `latest` does not name.
    ``progress`` says how far its comparison is while it runs.
    """

    version: int
    base: int
    share: float
    alias: str
    promote_if: list[str]
    withdraw_if: list[str]
    files: int
    state: str
    reason: str
    begun: float
    ended: float | None
    withdrawn: list[int] = []
    progress: str = ""


class Conditions(msgspec.Struct, frozen=True):
    """Conditions on outcomes that end a roll-out: ``text < -0.1%``.

    The server promotes the version when all of ``promote_if`` are sure. It withdraws the version when one of them is
    refuted, or one of ``withdraw_if`` is sure. It first compares the versions when both have compiled ``files`` files.
    """

    promote_if: Sequence[str] = ()
    withdraw_if: Sequence[str] = ()
    files: int = 20


class PolicyDetails(msgspec.Struct, frozen=True):
    """One policy: its aliases, its versions (newest first), and its running or last roll-out."""

    summary: PolicySummary
    aliases: dict[str, int]
    versions: list[VersionDetails]
    rollout: Rollout | None = None


class RepositoryClient(Closing):
    """The RepositoryService of one server.

    Args:
        address: ``grpc:HOST:PORT``, ``grpcs:HOST:PORT`` (TLS) or ``grpc:unix:PATH``; ``grpc:`` may be left out.
        timeout: limit of each call, in seconds. A call that publishes includes loading the version.
        credentials: the client's certificates and token; by default those that the environment names.

    Raises:
        InvalidError: the address is not one of gRPC, a file of the credentials cannot be read, or the token would be
            sent in plaintext.

    """

    def __init__(self, address: str, *, timeout: float = 60.0, credentials: Credentials | None = None) -> None:
        if address.startswith("socket:"):
            raise InvalidError(f"{address} is a socket for compilers; policies are published over gRPC")
        self._target, secure = split_address(address)
        shown = credentials or Credentials.from_environment()
        self._metadata = token_metadata(self._target, shown, secure=secure)
        self._timeout = timeout
        self._channel = open_channel(self._target, shown, secure=secure, options=[("grpc.enable_http_proxy", 0)])
        self._made_stub = RepositoryServiceStub(self._channel)
        self._made_replication = ReplicationServiceStub(self._channel)
        self._closed = False

    @property
    def _stub(self) -> RepositoryServiceStub:
        if self._closed:
            raise was_closed(self._target)
        return self._made_stub

    @property
    def _replication(self) -> ReplicationServiceStub:
        if self._closed:
            raise was_closed(self._target)
        return self._made_replication

    def publish(
        self, policy: str, files: Path, *, config: str = "", aliases: Sequence[str] = (), adopted: int | None = None
    ) -> PolicyVersion:
        """Publish a version; return it as soon as new sessions get it.

        Args:
            policy: the policy's name.
            files: a folder of the version's files.
            config: the text of ``policy.toml``, for a new policy.
            aliases: names that the version gets.
            adopted: the number of a version that replicas keep, whose files these are; ``None``: a new number.

        Raises:
            PolicyBridgeError: the version is refused; the message has the reason. The version before it stays.

        """
        if not files.is_dir():
            raise InvalidError(f"{files} is not a folder; a version is a folder of files")
        header = pb.PublishHeader(
            policy=policy, config=config, digest=digest(files), aliases=aliases, adopted=adopted or 0
        )
        return version_from_pb(self._call(self._stub.Publish, _messages(header, files)).version)

    def publish_weights(
        self, base: PolicyReference, weights: bytes | Mapping[str, npt.NDArray[Any]], *, aliases: Sequence[str] = ()
    ) -> PolicyVersion:
        """Publish the version ``base`` with other weights: tensors by name, as arrays or in safetensors.

        Raises:
            PolicyBridgeError: the version is refused; the message has the reason. The version before it stays.

        """
        data = weights if isinstance(weights, bytes) else save_weights(weights)
        return version_from_pb(self._call(self._stub.PublishWeights, _weights(base, data, aliases)).version)

    def set_alias(self, policy: str, alias: str, version: int) -> int | None:
        """Point ``alias`` to ``version``; return the version that it pointed to before.

        Raises:
            PolicyBridgeError: there is no such policy or version, or the server does not allow it.

        """
        response = self._call(self._stub.SetAlias, pb.SetAliasRequest(policy=policy, alias=alias, version=version))
        return response.previous if response.HasField("previous") else None

    def retire(self, policy: str, version: int) -> None:
        """Retire ``version``: the server removes it when its last session has ended.

        Raises:
            PolicyBridgeError: an alias points to it, there is no such version, or the server does not allow it.

        """
        self._call(self._stub.Retire, pb.RetireRequest(policy=policy, version=version))

    def roll_out(
        self, version: PolicyReference, share: float, *, alias: str = "latest", conditions: Conditions | None = None
    ) -> Rollout:
        """Give a share of the new sessions of ``alias`` a version, or change the running roll-out of that version.

        Args:
            version: the version, by its number.
            share: the share of the files that sessions compile, above 0 and up to 1.
            alias: the alias whose sessions are split.
            conditions: the server ends the roll-out by these; ``None``: a person ends it.

        Raises:
            InvalidError: no version's number is given.
            PolicyBridgeError: there is no such version, another roll-out runs, or the server does not allow it.

        """
        if version.version is None:
            raise InvalidError(f"{version}: name the version to roll out by its number, POLICY@NUMBER")
        given = conditions or Conditions()
        request = pb.RolloutRequest(
            policy=version.name,
            version=version.version,
            share=share,
            alias=alias,
            promote_if=given.promote_if,
            withdraw_if=given.withdraw_if,
            files=given.files,
        )
        return _rollout(self._call(self._stub.Rollout, request).rollout)

    def end_rollout(self, policy: str, *, promote: bool, reason: str = "", version: int | None = None) -> Rollout:
        """End the roll-out of ``policy``: all new sessions get the version, or none.

        Raises:
            PolicyBridgeError: no roll-out runs, or one of another version than ``version``, or the server does not
                allow it.

        """
        request = pb.EndRolloutRequest(policy=policy, promote=promote, reason=reason, version=version or 0)
        return _rollout(self._call(self._stub.EndRollout, request).rollout)

    def roll_back(self, policy: str, to: int | None = None, *, leaves: int | None = None, reason: str = "") -> Rollout:
        """Let ``latest`` of ``policy`` name an earlier version until a newer one is published, or a later one again.

        Args:
            policy: the policy's name.
            to: the version that ``latest`` is to name; ``None``: the one before.
            leaves: the version that ``latest`` must name now; ``None``: any.
            reason: for people.

        Returns:
            The step: ``version`` was ``latest``, and ``base`` is ``latest`` now; if ``to`` is a later version, the
            other way round.

        Raises:
            PolicyBridgeError: there is no such version, ``latest`` is not the version that is left, the version cannot
                be loaded, or the server does not allow it.

        """
        request = pb.RollbackRequest(policy=policy, to=to or 0, leaves=leaves or 0, reason=reason)
        return _rollout(self._call(self._stub.Rollback, request).rollout)

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
        rollout = _rollout(response.rollout) if response.HasField("rollout") else None
        return PolicyDetails(_summary(response.summary), dict(response.aliases), versions, rollout)

    def download(self, version: PolicyReference, folder: Path) -> PolicyVersion:
        """Write the files of a version into ``folder``, which must not exist yet; give the version.

        The folder appears when all files are there. The server wants a token of the scope ``follow``, and ``read``.

        Raises:
            InvalidError: ``folder`` exists.
            NotFoundError: there is no such version, or it is part of the server's package.
            PolicyBridgeError: the server does not allow it, or sends a path that leads out of the folder, or files of
                another size than the version's.
            OSError: the folder cannot be written.

        """
        details = _find(self.show(version.name), version)
        chosen = PolicyVersion(version.name, details.version, details.digest)
        with self._mapped():
            request = DownloadRequest(version=version_to_pb(chosen))
            pieces = self._replication.Download(request, timeout=self._timeout, metadata=self._metadata)
            receive_files(pieces, folder, details.bytes)
        return chosen

    def replicas(self, wait_for: WaitFor = "none", seconds: float = 30.0) -> Replicas:
        """Give the server's replicas; first wait until none, most or all of them serve the server's present state.

        A replica that is away counts for ten minutes. After ``seconds``, at most 600, the result names those behind.

        Raises:
            PolicyBridgeError: the server cannot be reached, or does not allow it.

        """
        return ask_replicas(self._replication, self._call, wait_for, seconds)

    def close(self) -> None:
        """Close the channel; no call follows."""
        self._closed = True
        close_channel(self._channel)

    def _call(self, method: Any, request: Any, more_seconds: float = 0.0) -> Any:
        with self._mapped():
            return ask(method, request, self._target, self._timeout + more_seconds, self._metadata)

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
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
            raise InvalidError(f"{name} is of type {tensor.dtype}, which safetensors does not support")
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
    yield pb.PublishWeightsRequest(base=reference_to_pb(base), aliases=aliases, safetensors=data[:_PIECE])
    for start in range(_PIECE, len(data), _PIECE):
        yield pb.PublishWeightsRequest(safetensors=data[start : start + _PIECE])


def _find(details: PolicyDetails, wanted: PolicyReference) -> VersionDetails:
    """Give the version that a reference means."""
    matches = [version for version in details.versions if _is_meant(details, version, wanted)]
    if len(matches) > 1:
        raise InvalidError(f"{wanted} means {len(matches)} versions; give more digits of the digest")
    for version in matches:
        return version
    raise NotFoundError(f"there is no {wanted}; `policybridge policies show {wanted.name}` lists the versions")


def _is_meant(details: PolicyDetails, version: VersionDetails, wanted: PolicyReference) -> bool:
    if wanted.version is not None:
        return version.version == wanted.version
    alias = wanted.alias or "latest"
    if alias.startswith("sha256:"):
        return version.digest.startswith(alias)
    return {**details.aliases, "latest": details.summary.latest}.get(alias) == version.version


def _summary(message: pb.PolicySummary) -> PolicySummary:
    return PolicySummary(
        message.name, message.description, message.backend, message.latest, message.versions, message.error
    )


def _rollout(message: pb.Rollout) -> Rollout:
    return Rollout(
        message.version,
        message.base,
        message.share,
        message.alias,
        list(message.promote_if),
        list(message.withdraw_if),
        message.files,
        message.state,
        message.reason,
        message.begun,
        message.ended if message.HasField("ended") else None,
        list(message.withdrawn),
        message.progress,
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
