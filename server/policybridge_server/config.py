"""The server's configuration: one frozen value that validates itself, read from the command line and a file."""

from pathlib import Path
from typing import Annotated, Any

import msgspec

from policybridge_core.errors import InvalidError
from policybridge_serdes.interactive import DEFAULT_LIMIT
from policybridge_server.mlbridge.grpc.config import MlBridgeConfig
from policybridge_server.mlbridge.pipes.config import PipeConfig

_ENVELOPE = 1 << 20
"""Bytes that a message may have beside its observation: names, shapes, labels."""


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What ``policybridge serve`` does.

    Attributes:
        repository: folders of policies.
        grpc: addresses for gRPC: ``HOST:PORT`` or ``unix:PATH``; port 0 takes a free one.
        grpcio: the same, served by gRPC's own library: slower, and with channelz.
        socket: paths of Unix sockets.
        http: addresses for the Open Inference Protocol over HTTP: ``HOST:PORT``.
        sequence_idle: seconds without a request after which one of its sequences ends.
        pipe: ML-Compiler-Bridge's pipes, each a table or its short form; see docs/ml-compiler-bridge-pipes.md.
        allow_python: whether policies that are Python code may run.
        max_observation_bytes: an observation above it is refused.
        max_message_bytes: so is a gRPC message or an HTTP body; absent: an observation and 1 MiB beside it.
        allow_publish: whether clients may publish versions, set aliases and retire.
        keep_versions: how many versions of a policy stay when one is published, beside those that an alias names.
        max_artifact_bytes: a version above it is refused, also one whose archives would be larger when unpacked.
        max_artifact_files: a version of more files is refused.
        spin: microseconds for which the loop stays awake after an answer; 0 saves power, and costs each decision the
            time in which a core wakes up.
        grace: seconds that running sessions may still take after SIGTERM.
        ledger: file that sessions are recorded in; absent: nothing is.
        ledger_store: how; see `policybridge_server.ledger.store`.
        ledger_max_bytes: the oldest sessions are dropped from a ledger that is larger.
        ledger_max_age: sessions that began so many seconds ago are dropped.
        mlbridge: users' own services; see docs/ml-compiler-bridge.md.

    """

    repository: list[Path] = []
    grpc: list[str] = []
    grpcio: list[str] = []
    socket: list[Path] = []
    http: list[str] = []
    sequence_idle: Annotated[float, msgspec.Meta(gt=0)] = 600.0
    pipe: list[str | PipeConfig] = []
    allow_python: bool = False
    allow_publish: bool = False
    keep_versions: Annotated[int, msgspec.Meta(ge=1)] = 10
    max_artifact_bytes: Annotated[int, msgspec.Meta(ge=1)] = 1 << 30
    max_artifact_files: Annotated[int, msgspec.Meta(ge=1)] = 1000
    max_observation_bytes: Annotated[int, msgspec.Meta(ge=1)] = DEFAULT_LIMIT
    max_message_bytes: Annotated[int, msgspec.Meta(ge=1)] | None = None
    spin: Annotated[float, msgspec.Meta(ge=0, le=10_000)] = 50.0
    grace: Annotated[float, msgspec.Meta(ge=0)] = 60.0
    ledger: Path | None = None
    ledger_store: str = "sqlite"
    ledger_max_bytes: Annotated[int, msgspec.Meta(ge=1)] | None = None
    ledger_max_age: Annotated[float, msgspec.Meta(gt=0)] | None = None
    mlbridge: MlBridgeConfig | None = None

    def __post_init__(self) -> None:
        if not self.repository:
            raise ValueError("no policies: give --repository DIR, or --demo for the bundled ones")
        if not (self.grpc or self.grpcio or self.socket or self.http or self.pipe):
            raise ValueError("nowhere to listen: give --grpc ADDR, --socket PATH, --http ADDR or --pipe BASE")

    @property
    def message_limit(self) -> int:
        """Bytes that a gRPC message or an HTTP body may have."""
        return self.max_message_bytes or self.max_observation_bytes + _ENVELOPE


def make_config(file: Path | None, given: dict[str, Any]) -> ServerConfig:
    """Read the TOML ``file``, if there is one; what is ``given`` on the command line goes before it.

    Raises:
        InvalidError: the file cannot be read, or a field is unknown, of the wrong type or missing.

    """
    try:
        fields = msgspec.toml.decode(file.read_bytes(), type=dict[str, Any]) if file else {}
        return msgspec.convert(fields | given, ServerConfig, dec_hook=_to_path)
    except (OSError, UnicodeDecodeError, msgspec.DecodeError, msgspec.ValidationError) as error:
        where = f"{file}: " if file else ""
        raise InvalidError(f"{where}{error}") from error


def _to_path(kind: type, value: Any) -> Any:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise ValueError(f"expected {kind.__name__}, got {value!r}")
