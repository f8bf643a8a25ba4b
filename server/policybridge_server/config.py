"""The server's configuration: one frozen value that validates itself, read from the command line and a file.

Every option is described only here: its name, type, default and help text. The command line is made from this
(`policybridge_server.cli`).
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec

from policybridge_core.errors import InvalidError
from policybridge_core.fields import cure_of
from policybridge_serdes.limits import DEFAULT_LIMIT, DEFAULT_LIMITS, MessageLimits

_ENVELOPE: Final = 1 << 20
"""Bytes of a message besides its observation: names, shapes, labels."""

LISTENING: Final = ("grpc", "grpcio", "socket", "http", "pipe")
"""The fields that hold addresses of the transport of the same name."""

_Count = Annotated[int, msgspec.Meta(ge=1)]
_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Seconds = Annotated[float, msgspec.Meta(gt=0, le=1e9)]
"""At most 30 years: a lock that is to be waited for without end, or for longer than the system counts, is an error."""
_Struct = TypeVar("_Struct", bound=msgspec.Struct)


def _option(metavar: str | None, description: str) -> msgspec.Meta:
    """Describe an option; ``metavar`` stands for its value in the help text."""
    return msgspec.Meta(description=description, extra={"metavar": metavar})


class ServerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The options of ``policybridge serve``; each field is described by its own help text.

    Fields for a part of the server on a higher floor (``pipe``, ``mlbridge``) are read by that part.

    Raises:
        ValueError: there is no policy to serve, or no address to listen on.

    """

    workers: Annotated[
        Annotated[int, msgspec.Meta(ge=1, le=256)],
        _option("N", "number of processes that serve --grpc and --socket, to use more than one core for decisions"),
    ] = 1
    repository: Annotated[
        list[str], _option("DIR", "folder of policies, or an address of one, such as s3://BUCKET/FOLDER")
    ] = []
    follow: Annotated[
        str | None, _option("ADDR", "be a replica of the server grpc[s]:HOST:PORT: serve its policies")
    ] = None
    follow_ca: Annotated[
        Path | None,
        _option("FILE", "PEM of the authorities of the leader's certificate (default: POLICYBRIDGE_TLS_CA)"),
    ] = None
    follow_certificate: Annotated[
        Path | None,
        _option("FILE", "certificate for the leader, in PEM (default: POLICYBRIDGE_TLS_CERTIFICATE)"),
    ] = None
    follow_key: Annotated[Path | None, _option("FILE", "its private key (default: POLICYBRIDGE_TLS_KEY)")] = None
    follow_token_file: Annotated[
        Path | None, _option("FILE", "holds the token for the leader (default: POLICYBRIDGE_TOKEN_FILE)")
    ] = None
    cache: Annotated[
        Path | None,
        _option("DIR", "folder of the copies of policies from elsewhere (default: policybridge in XDG_CACHE_HOME)"),
    ] = None
    poll: Annotated[
        _Seconds, _option("SECONDS", "look for new versions at addresses of --repository at this interval")
    ] = 5.0
    grpc: Annotated[list[str], _option("ADDR", "HOST:PORT or unix:PATH; port 0: a free one")] = []
    grpcio: Annotated[list[str], _option("ADDR", "as --grpc, by gRPC's own library: slower, and with channelz")] = []
    socket: Annotated[list[str], _option("PATH", "path of a Unix socket")] = []
    pipe: Annotated[
        list[str | dict[str, Any]],
        _option(
            "BASE[:FORMAT],policy=NAME,advice=TYPE",
            "FIFOs BASE.in and BASE.out for ML-Compiler-Bridge; see docs/ml-compiler-bridge.md",
        ),
    ] = []
    http: Annotated[list[str], _option("ADDR", "Open Inference Protocol over HTTP: HOST:PORT")] = []
    transport: Annotated[
        list[str], _option("NAME=ADDRESS", "an address of any transport, also of another distribution's")
    ] = []
    grpc_service: Annotated[list[str], _option("NAME", "serve this service over gRPC, by default all")] = []
    socket_mode: Annotated[
        Annotated[str, msgspec.Meta(pattern=r"^0?[0-7]{3}$")],
        _option("OCTAL", "permissions of Unix sockets and pipes; a client needs to write"),
    ] = "0600"
    socket_owner: Annotated[
        str | None, _option("USER", "owner of Unix sockets and pipes (default: the server's user)")
    ] = None
    socket_group: Annotated[
        str | None, _option("GROUP", "group of Unix sockets and pipes (default: the server's group)")
    ] = None
    tls_certificate: Annotated[Path | None, _option("FILE", "all TCP ports speak TLS with this PEM certificate")] = None
    tls_key: Annotated[Path | None, _option("FILE", "its private key, in PEM without a password")] = None
    tls_client_ca: Annotated[
        Path | None, _option("FILE", "clients on TCP need a certificate of these PEM authorities")
    ] = None
    tokens: Annotated[Path | None, _option("FILE", "clients on TCP need a token of this TOML file")] = None
    report_scope: Annotated[
        bool, _option(None, "outcomes need a token of the scope report; otherwise evaluate is enough")
    ] = False
    insecure: Annotated[
        bool, _option(None, "listen beyond this machine even without TLS and tokens, and serve every client")
    ] = False
    http_host: Annotated[
        list[str], _option("NAME", "a name in the URLs of HTTP clients, besides localhost and the address; * for any")
    ] = []
    no_forms: Annotated[
        bool, _option(None, "give clients no portable form of a policy: the server makes every decision")
    ] = False
    allow_python: Annotated[bool, _option(None, "run policies that are Python code; the bundled ones always run")] = (
        False
    )
    allow_publish: Annotated[bool, _option(None, "let clients publish versions, set aliases and retire")] = False
    keep_versions: Annotated[
        _Count | None,
        _option(
            "N", "when a version is published, delete older ones but N and those with an alias (default: keep all)"
        ),
    ] = None
    max_artifact_bytes: Annotated[
        _Count, _option("N", "refuse larger versions, and those whose archives are larger when unpacked")
    ] = 1 << 30
    max_artifact_files: Annotated[_Count, _option("N", "refuse versions of more files")] = 1000
    max_observation_bytes: Annotated[_Count, _option("N", "refuse larger observations")] = DEFAULT_LIMIT
    max_message_bytes: Annotated[
        _Count | None,
        _option("N", "refuse larger gRPC and HTTP messages (default: 1 MiB more than an observation may have)"),
    ] = None
    max_sessions: Annotated[_Count, _option("N", "refuse more sessions at a time")] = 20_000
    max_client_sessions: Annotated[
        _Count, _option("N", "refuse more sessions of one host at a time; the Unix sockets count as one")
    ] = 10_000
    max_client_opens: Annotated[
        _Count | None, _option("N", "refuse more sessions of one host in one second (default: no limit)")
    ] = None
    max_features: Annotated[_Count, _option("N", "refuse observations of more features")] = DEFAULT_LIMITS.features
    max_values: Annotated[
        _Count, _option("N", "refuse observations of more values that are text: numbers in JSON, and strings")
    ] = DEFAULT_LIMITS.values
    max_outcome_values: Annotated[_Count, _option("N", "refuse outcomes of more values")] = (
        DEFAULT_LIMITS.outcome_values
    )
    max_context_values: Annotated[
        _Count, _option("N", "refuse outcomes of more values by context (function), all contexts together")
    ] = DEFAULT_LIMITS.context_values
    hello_timeout: Annotated[
        _Seconds,
        _option("SECONDS", "end a connection or a session whose client sends no complete first message in this time"),
    ] = 20.0
    message_timeout: Annotated[
        _Seconds,
        _option("SECONDS", "end a session whose client does not finish a message within this time"),
    ] = 60.0
    idle_timeout: Annotated[
        _Seconds, _option("SECONDS", "close a connection that carried neither a session nor a call for this time")
    ] = 3600.0
    reserve_descriptors: Annotated[
        Annotated[int, msgspec.Meta(ge=0)],
        _option("N", "file descriptors that no client gets, at most a quarter of all (ulimit -n)"),
    ] = 64
    max_buffered_bytes: Annotated[
        _Count,
        _option("N", "refuse gRPC calls while clients make the server hold more in requests and unread answers"),
    ] = 1 << 29
    sequence_idle: Annotated[
        _Seconds, _option("SECONDS", "end a sequence of the Open Inference Protocol after this time without a request")
    ] = 600.0
    decision_timeout: Annotated[
        _Seconds, _option("SECONDS", "abandon a policy that gives no advice within this time, and load it again")
    ] = 60.0
    load_timeout: Annotated[_Seconds, _option("SECONDS", "refuse versions that are not loaded within this time")] = (
        300.0
    )
    spin: Annotated[
        Annotated[float, msgspec.Meta(ge=0, le=10_000)],
        _option(
            "MICROSECONDS",
            "stay awake for this time after an answer; 0 saves power, but decisions wait for a core to wake up",
        ),
    ] = 250.0
    grace: Annotated[
        Annotated[float, msgspec.Meta(ge=0, le=1e9)],
        _option("SECONDS", "time for running sessions to end after SIGTERM"),
    ] = 60.0
    log_level: Annotated[
        Literal["debug", "info", "warning", "error"],
        _option("LEVEL", "log this level and above to standard error"),
    ] = "warning"
    log_format: Annotated[Literal["text", "json"], _option("FORMAT", "lines for people, or one JSON object a line")] = (
        "text"
    )
    traces: Annotated[
        str | None, _option("URL", "send OpenTelemetry's traces there by OTLP over HTTP, as to http://127.0.0.1:4318")
    ] = None
    trace_sessions: Annotated[
        _Share,
        _option("SHARE", "trace this share of the sessions without a trace context, which decides itself"),
    ] = 1.0
    trace_decisions: Annotated[_Share, _option("SHARE", "of the decisions of a traced session, trace this share")] = (
        0.01
    )
    ledger: Annotated[
        str | None,
        _option(
            "FILE|URL", "record sessions there: a file, or postgresql://USER@HOST/DATABASE (default: record nothing)"
        ),
    ] = None
    ledger_store: Annotated[
        str | None, _option("NAME", "the kind of ledger (default: sqlite for a file, postgresql for its URL)")
    ] = None
    ledger_spool: Annotated[
        Path | None,
        _option(
            "DIR",
            "folder for records while the database is away (default: spool in $STATE_DIRECTORY or "
            "~/.local/state/policybridge)",
        ),
    ] = None
    ledger_max_bytes: Annotated[
        _Count | None, _option("N", "drop the oldest sessions of a larger ledger (default: keep all)")
    ] = None
    ledger_max_age: Annotated[
        _Seconds | None, _option("SECONDS", "drop sessions that began longer ago (default: keep all)")
    ] = None
    runs: Annotated[
        list[Path],
        _option("DIR", "show training runs on the page: an --output of policybridge train, or a folder of several"),
    ] = []
    mlbridge: dict[str, Any] | None = None
    """Services of users' own .proto files; see docs/ml-compiler-bridge.md. A table of the file, and no option."""

    def __post_init__(self) -> None:
        if not (self.repository or self.follow):
            raise ValueError("no policies: give --repository DIR, --follow ADDR, or --demo for the bundled ones")
        if self.follow and self.allow_publish:
            raise ValueError(
                "publish at the leader: a server with --follow takes no changes, so leave out --allow-publish"
            )
        if not list(self.addresses()):
            raise ValueError(
                "nowhere to listen: give --grpc ADDR, --socket PATH, --http ADDR, --pipe BASE or "
                "--transport NAME=ADDRESS"
            )

    def addresses(self) -> Iterator[tuple[str, Any]]:
        """Return the addresses to listen on: the name of each transport, and an address in its form."""
        for name in LISTENING:
            yield from ((name, address) for address in getattr(self, name))
        for text in self.transport:
            name, equals, address = text.partition("=")
            if not (name and equals):
                raise ValueError(f"the transport {text!r} is not NAME=ADDRESS")
            yield name, address

    @property
    def limits(self) -> MessageLimits:
        """The limits of a client's message."""
        return MessageLimits(
            self.max_observation_bytes,
            self.max_features,
            self.max_values,
            self.max_outcome_values,
            self.max_context_values,
        )

    @property
    def message_limit(self) -> int:
        """Bytes that a gRPC message or an HTTP body may have."""
        return self.max_message_bytes or self.max_observation_bytes + _ENVELOPE


def make_config(file: Path | None, given: dict[str, Any]) -> ServerConfig:
    """Read the TOML ``file``, if there is one; values ``given`` on the command line override it.

    Raises:
        InvalidError: the file cannot be read, or a field is unknown, of the wrong type or missing.

    """
    where = f"{file}: " if file else ""
    try:
        fields = msgspec.toml.decode(file.read_bytes(), type=dict[str, Any]) if file else {}
    except (OSError, UnicodeDecodeError, msgspec.DecodeError) as error:
        raise InvalidError(f"{where}{error}") from error
    except RecursionError as error:
        raise InvalidError(f"{where}values are nested too deeply in each other") from error
    return convert_fields(fields | given, ServerConfig, where)


def convert_fields(fields: Any, kind: type[_Struct], where: str) -> _Struct:
    """Make a ``kind`` of TOML's ``fields``; messages begin with ``where``.

    Raises:
        InvalidError: a field is unknown, of the wrong type or missing.

    """
    try:
        return msgspec.convert(fields, kind, dec_hook=_to_path)
    except msgspec.ValidationError as error:
        raise InvalidError(f"{where}{error}{cure_of(error, kind)}") from error


def _to_path(kind: type, value: Any) -> Any:
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise ValueError(f"expected {kind.__name__}, got {value!r}")
