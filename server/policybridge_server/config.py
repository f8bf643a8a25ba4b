"""The server's configuration: one frozen value that validates itself, read from the command line and a file.

Every option is described here alone: its name, type, default and help text. The command line is made from this
(`policybridge_server.cli`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

import msgspec

from policybridge_core.errors import InvalidError
from policybridge_serdes.interactive import DEFAULT_LIMIT

_ENVELOPE: Final = 1 << 20
"""Bytes that a message may have beside its observation: names, shapes, labels."""

LISTENING: Final = ("grpc", "grpcio", "socket", "http", "pipe")
"""The fields that hold addresses of the transport of the same name."""

_Count = Annotated[int, msgspec.Meta(ge=1)]
_Seconds = Annotated[float, msgspec.Meta(gt=0)]
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def _option(metavar: str | None, description: str) -> msgspec.Meta:
    """Describe an option; ``metavar`` stands for its value in the help text."""
    return msgspec.Meta(description=description, extra={"metavar": metavar})


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What ``policybridge serve`` does; each field is described by its own help text.

    Fields of the part of a server that stands on a higher floor (``pipe``, ``mlbridge``) are read by that part.

    Raises:
        ValueError: there is no policy to serve, or no address to listen on.

    """

    repository: Annotated[list[Path], _option("DIR", "folder of policies")] = []
    grpc: Annotated[list[str], _option("ADDR", "HOST:PORT or unix:PATH; port 0: a free one")] = []
    grpcio: Annotated[list[str], _option("ADDR", "as --grpc, by gRPC's own library: slower, and with channelz")] = []
    socket: Annotated[list[str], _option("PATH", "path of a Unix socket")] = []
    pipe: Annotated[
        list[str | dict[str, Any]],
        _option(
            "BASE[:FORMAT],policy=NAME,advice=TYPE",
            "FIFOs BASE.in and BASE.out for ML-Compiler-Bridge; see docs/ml-compiler-bridge-pipes.md",
        ),
    ] = []
    http: Annotated[list[str], _option("ADDR", "Open Inference Protocol over HTTP: HOST:PORT")] = []
    transport: Annotated[
        list[str], _option("NAME=ADDRESS", "an address of any transport, also of another distribution's")
    ] = []
    grpc_service: Annotated[list[str], _option("NAME", "serve this service over gRPC, by default all")] = []
    allow_python: Annotated[bool, _option(None, "run policies that are Python code")] = False
    allow_publish: Annotated[bool, _option(None, "let clients publish versions, set aliases and retire")] = False
    keep_versions: Annotated[
        _Count, _option("N", "versions of a policy that stay when one is published, beside those with an alias")
    ] = 10
    max_artifact_bytes: Annotated[
        _Count, _option("N", "refuse larger versions, and those whose archives are larger when unpacked")
    ] = 1 << 30
    max_artifact_files: Annotated[_Count, _option("N", "refuse versions of more files")] = 1000
    max_observation_bytes: Annotated[_Count, _option("N", "refuse larger observations")] = DEFAULT_LIMIT
    max_message_bytes: Annotated[
        _Count | None,
        _option("N", "refuse larger gRPC and HTTP messages (default: 1 MiB more than an observation may have)"),
    ] = None
    sequence_idle: Annotated[
        _Seconds, _option("SECONDS", "end a sequence of the Open Inference Protocol after so long without a request")
    ] = 600.0
    spin: Annotated[
        Annotated[float, msgspec.Meta(ge=0, le=10_000)],
        _option(
            "MICROSECONDS",
            "stay awake for so long after an answer; 0 saves power, and each decision then waits for a core to wake up",
        ),
    ] = 250.0
    grace: Annotated[
        Annotated[float, msgspec.Meta(ge=0)], _option("SECONDS", "let running sessions go on for so long after SIGTERM")
    ] = 60.0
    ledger: Annotated[
        Path | None, _option("FILE", "record sessions, decisions and outcomes there (default: record nothing)")
    ] = None
    ledger_store: Annotated[str, _option("NAME", "the kind of ledger")] = "sqlite"
    ledger_max_bytes: Annotated[
        _Count | None, _option("N", "drop the oldest sessions of a larger ledger (default: keep all)")
    ] = None
    ledger_max_age: Annotated[
        _Seconds | None, _option("SECONDS", "drop sessions that began so long ago (default: keep all)")
    ] = None
    mlbridge: dict[str, Any] | None = None
    """Services of users' own .proto files; see docs/ml-compiler-bridge.md. A table of the file, and no option."""

    def __post_init__(self) -> None:
        if not self.repository:
            raise ValueError("no policies: give --repository DIR, or --demo for the bundled ones")
        if not list(self.addresses()):
            raise ValueError(
                "nowhere to listen: give --grpc ADDR, --socket PATH, --http ADDR, --pipe BASE or "
                "--transport NAME=ADDRESS"
            )

    def addresses(self) -> Iterator[tuple[str, Any]]:
        """Give what to listen on: the name of each transport, and an address as that transport takes it."""
        for name in LISTENING:
            yield from ((name, address) for address in getattr(self, name))
        for text in self.transport:
            name, equals, address = text.partition("=")
            if not (name and equals):
                raise ValueError(f"the transport {text!r} is not NAME=ADDRESS")
            yield name, address

    @property
    def message_limit(self) -> int:
        """Bytes that a gRPC message or an HTTP body may have."""
        return self.max_message_bytes or self.max_observation_bytes + _ENVELOPE


def make_config(file: Path | None, given: dict[str, Any]) -> ServerConfig:
    """Read the TOML ``file``, if there is one; what is ``given`` on the command line goes before it.

    Raises:
        InvalidError: the file cannot be read, or a field is unknown, of the wrong type or missing.

    """
    where = f"{file}: " if file else ""
    try:
        fields = msgspec.toml.decode(file.read_bytes(), type=dict[str, Any]) if file else {}
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise InvalidError(f"{where}{error}") from error
    return convert_fields(fields | given, ServerConfig, where)


def convert_fields(fields: Any, kind: type[_Struct], where: str) -> _Struct:
    """Make a ``kind`` of ``fields``, as TOML gives them; messages begin with ``where``.

    Raises:
        InvalidError: a field is unknown, of the wrong type or missing.

    """
    try:
        return msgspec.convert(fields, kind, dec_hook=_to_path)
    except msgspec.ValidationError as error:
        raise InvalidError(f"{where}{error}") from error


def _to_path(kind: type, value: Any) -> Any:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise ValueError(f"expected {kind.__name__}, got {value!r}")
