"""``policybridge bench``."""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

from policybridge_bench.contenders.contract import CONTENDERS
from policybridge_bench.payloads import PAYLOADS
from policybridge_serdes.errors import PolicyBridgeError
from policybridge_serdes.plugins import Table

SCENARIOS: Final = Table(
    kind="scenario",
    group="policybridge.scenarios",
    own={
        "load": "policybridge_bench.scenarios.load:run",
        "peers": "policybridge_bench.scenarios.peers:run",
        "unary": "policybridge_bench.scenarios.unary:run",
        "trees": "policybridge_bench.scenarios.trees:run",
        "session": "policybridge_bench.scenarios.session:run",
        "ledger": "policybridge_bench.scenarios.ledger:run",
        "publish": "policybridge_bench.scenarios.publish:run",
        "inference": "policybridge_bench.scenarios.inference:run",
        "mlbridge": "policybridge_bench.scenarios.mlbridge:run",
        "launcher": "policybridge_bench.scenarios.launcher:run",
        "overhead": "policybridge_bench.scenarios.overhead:run",
        "serdes": "policybridge_bench.scenarios.serdes:run",
        "start": "policybridge_bench.scenarios.start:run",
        "sessions": "policybridge_bench.scenarios.sessions:run",
    },
)
_SUMMARIES: Final = """\
scenarios:
  load       a server is asked by many clients: latencies, decisions/s, CPU, memory (the default)
  peers      the same beside bare echoes and other servers, in one interleaved run
  unary      one call for each decision, beside Triton's unary calls and a C++ unary echo
  trees      another build of the server (--python) beside this one, in one interleaved run
  session    sessions beside bare echoes and the model alone, with what is promised of them
  ledger     a server that records beside one that does not
  publish    publishing alone, and under clients that never stop asking
  inference  ModelInfer of the Open Inference Protocol beside Evaluate
  mlbridge   ML-Compiler-Bridge's getAdvice beside Evaluate
  launcher   what policybridge-run and policybridge run add to a compilation
  overhead   what the harness itself adds to a bare socket loop
  serdes     encoding and decoding alone
  start      how soon a server is ready, and its memory with one policy
  sessions   memory per open session

a list is separated by commas; the word `all` stands for all that is installed;
the defaults that --help shows are those of `load`"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the options; `options.fill` sets the defaults, because scenarios differ in them."""
    parser.description = "Measure policy servers."
    parser.epilog = _SUMMARIES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("scenario", nargs="?", default="load", help=f"one of {', '.join(SCENARIOS.names())}")
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("A.json", "B.json"), help="B beside A; nothing runs")
    parser.add_argument(
        "--limit", type=float, help="--compare and trees: B is worse above so many times A; 1.1, in trees 1.05"
    )
    _add_cases(parser)
    _add_run(parser)
    _add_server(parser)
    _add_single(parser)
    _add_output(parser)


def _add_cases(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what is measured")
    group.add_argument(
        "--contenders",
        metavar="LIST",
        help=f"of {', '.join(CONTENDERS.names())}; NAME/WAY for one of its ways alone; policybridge",
    )
    group.add_argument(
        "--ways",
        metavar="LIST",
        help="of policybridge: socket, grpc, grpc-unix, grpc-unary, grpc-unix-unary, grpc-tensors, grpc-unix-tensors, "
        "grpc-infer, grpc-unix-infer, inprocess, all; socket,grpc",
    )
    group.add_argument("--serdes", metavar="LIST", help="bitstream, protobuf, json, all; bitstream")
    group.add_argument("--backends", metavar="LIST", help="onnx, onnx-named, torch, …, all; onnx")
    group.add_argument("--payloads", metavar="LIST", help=f"of {', '.join(PAYLOADS)}, all; inliner")
    group.add_argument(
        "--generators", metavar="LIST", help="native, wire, python: every one that a way supports; else the first"
    )
    group.add_argument("--clients", metavar="LIST", help="how many at once; 1,8")
    group.add_argument("--rates", metavar="LIST", default="", help="open loop: requests/s of all clients together")


def _add_run(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how")
    group.add_argument("--rounds", type=int, help="each case is measured once in each; 5")
    group.add_argument("--seconds", type=float, help="for each case in each round; 1")
    group.add_argument("--warm-up", type=float, default=0.3, metavar="SECONDS", help="of each client, before; 0.3")
    group.add_argument("--busy", action="store_true", help="keep all cores awake")
    group.add_argument(
        "--baseline", metavar="CONTENDER[/WAY]", help="print ratios to it; without WAY, to its case of the same way"
    )
    group.add_argument(
        "--cache", type=Path, default=Path(".cache/bench"), help="for builds and environments; .cache/bench"
    )


def _add_server(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the policy server")
    group.add_argument("--server", action="append", default=[], metavar="ADDR", help="one that runs; with --policy")
    group.add_argument("--server-pid", type=int, metavar="PID", help="of that one, to measure its CPU and memory")
    group.add_argument("--repository", type=Path, metavar="DIR", help="serve this; with --policy")
    group.add_argument("--policy", metavar="NAME", help="which policy is asked instead of the harness's own")
    group.add_argument(
        "--python",
        default=sys.executable,
        metavar="PATH",
        help="what serves instead of this build: an interpreter, or the folder of a checkout",
    )
    group.add_argument("--serve-option", action="append", default=[], metavar="OPTION", help="of policybridge serve")


def _add_single(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("of one scenario")
    group.add_argument("--count", type=int, default=1000, help="sessions: how many are opened; 1000")
    group.add_argument("--versions", type=int, default=200, help="publish: at most so many under clients; 200")
    group.add_argument("--launcher", type=Path, metavar="FILE", help="launcher: the program policybridge-run")
    group.add_argument("--compiler", default="clang-22", help="launcher: clang-22")


def _add_output(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output, beside the table")
    group.add_argument("--json", type=Path, metavar="FILE")
    group.add_argument("--csv", type=Path, metavar="FILE")
    group.add_argument("--html", type=Path, metavar="FILE", help="with plots, in one file")


def run(arguments: argparse.Namespace) -> int:
    """Measure; 0, 1 where --compare found B worse, 2 where it could not be measured."""
    try:
        if arguments.compare:
            from policybridge_bench.compare import run as compare  # noqa: PLC0415 - it needs no server

            return compare(arguments)
        return cast("Callable[[argparse.Namespace], int]", SCENARIOS.load(arguments.scenario))(arguments)
    except PolicyBridgeError as error:
        sys.stderr.write(f"policybridge bench: {error}\n")
        return 2
