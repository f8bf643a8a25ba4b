"""``policybridge serve``."""

import argparse
import logging
import sys
from pathlib import Path
from typing import Any

from policybridge_core.errors import PolicyBridgeError
from policybridge_server.config import make_config
from policybridge_server.daemon import serve
from policybridge_server.repository import BUNDLED

_DEMO: dict[str, Any] = {"grpc": ["127.0.0.1:0"], "socket": ["policybridge.sock"], "allow_python": True}

_PIPE = "FIFOs BASE.in and BASE.out for ML-Compiler-Bridge; FORMAT: bytes or json; repeatable"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options; each stands for the field of ServerConfig of its name."""
    parser.description = "Serve policies to compilers until SIGTERM. Prints one line `ready ADDRESS…` when it listens."
    parser.add_argument("--repository", action="append", metavar="DIR", help="folder of policies; repeatable")
    parser.add_argument("--grpc", action="append", metavar="ADDR", help="HOST:PORT or unix:PATH; port 0: a free one")
    parser.add_argument("--grpcio", action="append", metavar="ADDR", help="as --grpc, by gRPC's own library")
    parser.add_argument("--socket", action="append", metavar="PATH", help="path of a Unix socket; repeatable")
    parser.add_argument("--pipe", action="append", metavar="BASE[:FORMAT],policy=NAME,advice=TYPE", help=_PIPE)
    parser.add_argument("--http", action="append", metavar="ADDR", help="Open Inference Protocol over HTTP: HOST:PORT")
    parser.add_argument("--allow-python", action="store_true", default=None, help="run policies that are Python code")
    parser.add_argument("--allow-publish", action="store_true", default=None, help="let clients publish versions")
    parser.add_argument("--keep-versions", type=int, metavar="N", help="of a policy, beside those that have an alias")
    parser.add_argument("--max-artifact-bytes", type=int, metavar="N", help="refuse larger versions")
    parser.add_argument("--max-artifact-files", type=int, metavar="N", help="refuse versions of more files")
    parser.add_argument("--max-observation-bytes", type=int, metavar="N", help="refuse larger observations")
    parser.add_argument("--max-message-bytes", type=int, metavar="N", help="refuse larger gRPC and HTTP messages")
    parser.add_argument("--sequence-idle", type=float, metavar="SECONDS", help="then end a client's idle sequence")
    parser.add_argument("--spin", type=float, metavar="MICROSECONDS", help="stay awake after an answer for so long")
    parser.add_argument("--grace", type=float, metavar="SECONDS", help="for running sessions after SIGTERM")
    parser.add_argument("--ledger", metavar="FILE", help="record sessions, decisions and outcomes there")
    parser.add_argument("--ledger-max-bytes", type=int, metavar="N", help="then drop the ledger's oldest sessions")
    parser.add_argument("--ledger-max-age", type=float, metavar="SECONDS", help="drop sessions that began before")
    parser.add_argument("--config", type=Path, metavar="FILE.toml", help="the same, by the options' names")
    parser.add_argument("--demo", action="store_true", help="serve the bundled policies, also without other options")
    parser.add_argument("--verbose", action="store_true", help="log what happens, to standard error")


def run(arguments: argparse.Namespace) -> int:
    """Serve; the exit status is 0 after a drain, 2 where the configuration cannot be used."""
    given = {name: value for name, value in vars(arguments).items() if value is not None}
    config, demo, verbose = given.pop("config", None), given.pop("demo"), given.pop("verbose")
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, format="%(levelname)s %(message)s")
    try:
        serve(make_config(config, _with_demo(given) if demo else given))
    except PolicyBridgeError as error:
        sys.stderr.write(f"policybridge serve: {error}\n")
        return 2
    return 0


def _with_demo(given: dict[str, Any]) -> dict[str, Any]:
    listens = {"grpc", "grpcio", "socket", "http", "pipe"} & given.keys()
    defaults = {name: value for name, value in _DEMO.items() if name not in ("grpc", "socket") or not listens}
    return defaults | given | {"repository": [str(BUNDLED), *given.get("repository", [])]}
