"""``policybridge serve``."""

import argparse
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

from msgspec import inspect

from policybridge_core.errors import PolicyBridgeError
from policybridge_core.plugins import Table
from policybridge_core.terminal import complain
from policybridge_server.config import LISTENING, ServerConfig, make_config
from policybridge_server.daemon import serve
from policybridge_server.ending import end_in_time
from policybridge_server.grpc.services import SERVICES
from policybridge_server.ledger.contract import LEDGERS
from policybridge_server.ledger.place import check_shown
from policybridge_server.log import start_log
from policybridge_server.repository import BUNDLED
from policybridge_server.workers.parent import serve_with_workers

_PARTS: Final[dict[str, Table]] = {"grpc_service": SERVICES, "ledger_store": LEDGERS}
"""The options whose values are names of parts."""

_GROUPS: Final = {
    "policies": (
        "repository",
        "follow",
        "follow_ca",
        "follow_certificate",
        "follow_key",
        "follow_token_file",
        "cache",
        "poll",
        "workers",
        "allow_python",
        "allow_publish",
        "keep_versions",
        "max_artifact_bytes",
        "max_artifact_files",
    ),
    "addresses": (
        "grpc",
        "grpcio",
        "socket",
        "http",
        "pipe",
        "transport",
        "grpc_service",
        "max_observation_bytes",
        "max_message_bytes",
        "max_buffered_bytes",
        "sequence_idle",
    ),
    "access": (
        "tls_certificate",
        "tls_key",
        "tls_client_ca",
        "tokens",
        "no_forms",
        "report_scope",
        "insecure",
        "http_host",
        "socket_mode",
        "socket_owner",
        "socket_group",
    ),
    "limits of a client": (
        "max_sessions",
        "max_client_sessions",
        "max_client_opens",
        "max_features",
        "max_values",
        "max_outcome_values",
        "max_context_values",
        "hello_timeout",
        "message_timeout",
        "idle_timeout",
        "reserve_descriptors",
    ),
    "operation": (
        "spin",
        "decision_timeout",
        "load_timeout",
        "grace",
        "log_level",
        "traces",
        "trace_sessions",
        "trace_decisions",
        "runs",
        "log_format",
    ),
    "the ledger": (
        "ledger",
        "ledger_store",
        "ledger_spool",
        "ledger_max_bytes",
        "ledger_max_age",
    ),
}
"""The options in groups, as docs/configuration.md has them."""

_NUMBERS: Final[dict[type[inspect.Type], type]] = {inspect.IntType: int, inspect.FloatType: float}

_LISTEN_DEMO: Final[dict[str, Any]] = {"grpc": ["127.0.0.1:0"], "socket": ["policybridge.sock"]}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options: those of `ServerConfig`, and three more."""
    parser.description = "Serve policies to compilers until SIGTERM. Prints one line `ready ADDRESS…` when it listens."
    parser.epilog = "Exit status: 0 after SIGTERM; 2 if the configuration cannot be used."
    options = {field.name: (field, described) for field, described in _options()}
    for title, names in _GROUPS.items():
        group = parser.add_argument_group(title)
        for name in names:
            group.add_argument(f"--{name.replace('_', '-')}", default=None, **_settings(*options[name]))
    parser.add_argument("--config", type=Path, metavar="FILE.toml", help="the same, by the options' names with _ for -")
    parser.add_argument("--demo", action="store_true", help="serve the bundled policies, also without other options")
    parser.add_argument("--verbose", action="store_true", help="log what happens: --log-level info")


def _options() -> Iterator[tuple[inspect.Field, inspect.Metadata]]:
    structure = cast("inspect.StructType", inspect.type_info(ServerConfig))
    # A field without a description is a table of the file, and no option.
    return ((field, field.type) for field in structure.fields if isinstance(field.type, inspect.Metadata))


def _settings(field: inspect.Field, described: inspect.Metadata) -> dict[str, Any]:
    """Return the arguments of `add_argument` for a field."""
    text = (described.extra_json_schema or {})["description"]
    kind = described.type
    if isinstance(kind, inspect.BoolType):
        return {"action": "store_true", "help": text}
    settings = {"metavar": (described.extra or {})["metavar"], "type": _type(kind)}
    if isinstance(kind, inspect.LiteralType):
        settings["choices"] = kind.values
        text += ": %(choices)s"
    if field.name in _PARTS:
        settings["choices"] = _PARTS[field.name]
        text += ": %(choices)s"
    if isinstance(kind, inspect.ListType):
        settings["action"] = "append"
        text += "; repeatable"
    elif field.default is not None:
        text += f" (default: {field.default})"
    return {**settings, "help": text}


def _type(kind: inspect.Type) -> type:
    # A path or a pipe stays text here: `make_config` converts options and the file's values alike.
    kinds = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    return next((_NUMBERS[type(each)] for each in kinds if type(each) in _NUMBERS), str)


def run(arguments: argparse.Namespace) -> int:
    """Serve; the exit status is 0 after a drain, 2 if the configuration cannot be used."""
    given = {name: value for name, value in vars(arguments).items() if value is not None}
    file, demo, verbose = given.pop("config", None), given.pop("demo"), given.pop("verbose")
    given = _with_demo(given) if demo else given

    def read() -> ServerConfig:
        made = make_config(file, given)
        start_log(made, verbose=verbose)
        return made

    try:
        check_shown(given.get("ledger", ""))
        config = read()
        (serve if config.workers == 1 else serve_with_workers)(config, reread=read)
        end_in_time()
    except PolicyBridgeError as error:
        complain(f"policybridge serve: {error}")
        return 2
    except OSError as error:
        # The disk is full or cannot be read; no traceback is needed.
        logging.debug("the server ended", exc_info=error)
        complain(f"policybridge serve: {error}")
        return 2
    return 0


def _with_demo(given: dict[str, Any]) -> dict[str, Any]:
    listen = {} if given.keys() & {*LISTENING, "transport"} else _LISTEN_DEMO
    return {**listen, **given, "repository": [str(BUNDLED), *given.get("repository", [])]}
