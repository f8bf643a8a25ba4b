"""``policybridge bench``."""

import argparse
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, cast

from policybridge_bench.contenders.contract import CONTENDERS
from policybridge_bench.drive import GENERATORS, Prepare
from policybridge_bench.payloads import PAYLOADS
from policybridge_core.errors import PolicyBridgeError
from policybridge_core.plugins import Table, load_part

_SUMMARIES: Final = {
    "load": "a server under load: latencies, decisions/s, CPU, memory (the default)",
    "trees": "another build of the server (--python) and this one, in one interleaved run",
    "ledger": "a server with a ledger and one without",
    "telemetry": "the cost of counters, scrapes and traces",
    "workers": "servers with one worker and with more (--workers)",
    "launcher": "the time that policybridge-run and policybridge run add to a compilation",
    "store": "the time that a store of tuned decisions adds to a compilation",
    "embedded": "the time that a policy in a plugin adds to a compilation; compares its objects with the server's",
    "start": "time until a server is ready, and its memory with one policy",
    "sessions": "memory for each open session",
}
_SERVERS: Final = ("load", "trees", "ledger", "workers")
SCENARIOS: Final = Table(
    kind="scenario",
    group="policybridge.scenarios",
    own={
        **{name: f"policybridge_bench.scenarios.{name}:run [bench]" for name in _SUMMARIES},
        **{name: f"policybridge_bench.scenarios.servers:{name} [bench]" for name in _SERVERS},
    },
)
_EPILOG: Final = """\
scenarios:
{}

A LIST is separated by commas; `all` selects everything that is installed. The defaults above are those of
`load`; other scenarios may have others.

Exit status: 0; 1 if --compare finds B worse; 2 for what cannot be done."""


def add_arguments(
    parser: argparse.ArgumentParser,
    scenarios: Table = SCENARIOS,
    contenders: Table = CONTENDERS,
    generators: Mapping[str, Prepare] = GENERATORS,
) -> None:
    """Describe the options; `options.fill` sets the defaults, because scenarios differ in them."""
    parser.description = "Measure policy servers."
    parser.epilog = _EPILOG.format("\n".join(f"  {name:10} {text}" for name, text in _SUMMARIES.items()))
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.set_defaults(scenarios=scenarios, known=contenders, prepare=generators)
    parser.add_argument("scenario", nargs="?", default="load", help=f"one of {', '.join(scenarios.names())}")
    parser.add_argument(
        "--compare", nargs=2, type=Path, metavar=("A.json", "B.json"), help="compare two results, without a run"
    )
    parser.add_argument(
        "--limit",
        type=float,
        help="--compare and trees: B is worse above this multiple of A (default: 1.1; trees: 1.05)",
    )
    _add_cases(parser, contenders, generators)
    _add_run(parser)
    _add_server(parser)
    _add_single(parser)
    _add_output(parser)


def _add_cases(parser: argparse.ArgumentParser, contenders: Table, generators: Iterable[str]) -> None:
    group = parser.add_argument_group("cases")
    group.add_argument(
        "--contenders",
        metavar="LIST",
        help=f"of {', '.join(contenders.names())}; NAME/WAY for one of its ways alone (default: policybridge)",
    )
    group.add_argument(
        "--ways",
        metavar="LIST",
        help="of policybridge: socket, grpc, grpc-unix, grpc-unary, grpc-unix-unary, grpc-tensors, grpc-unix-tensors, "
        "grpc-infer, grpc-unix-infer, inprocess, all (default: socket,grpc)",
    )
    group.add_argument("--serdes", metavar="LIST", help="bitstream, protobuf, json, all (default: bitstream)")
    group.add_argument("--backends", metavar="LIST", help="onnx, onnx-named, torch, …, all (default: onnx)")
    group.add_argument("--payloads", metavar="LIST", help=f"of {', '.join(PAYLOADS)}, all (default: inliner)")
    group.add_argument(
        "--generators",
        metavar="LIST",
        help=f"{', '.join(generators)}: the load generators to use (default: the first that a way supports)",
    )
    group.add_argument("--clients", metavar="LIST", help="numbers of clients (default: 1,8)")
    group.add_argument("--rates", metavar="LIST", default="", help="open loop: requests/s of all clients together")


def _add_run(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("how")
    group.add_argument("--rounds", type=int, help="each measures every case once (default: 5)")
    group.add_argument("--seconds", type=float, help="of each case in each round (default: 1)")
    group.add_argument(
        "--warm-up",
        type=float,
        default=0.3,
        metavar="SECONDS",
        help="of each client, before the measurement (default: 0.3)",
    )
    group.add_argument("--busy", action="store_true", help="keep all cores awake, by processes of the lowest priority")
    group.add_argument(
        "--baseline",
        metavar="CONTENDER[/WAY]",
        help="print ratios to the cases of this contender; without WAY, to its case of the same way",
    )
    group.add_argument(
        "--cache",
        type=Path,
        default=Path(".cache/bench"),
        help="folder for builds and environments (default: .cache/bench)",
    )


def _add_server(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("the policy server")
    group.add_argument(
        "--server", action="append", default=[], metavar="ADDR", help="address of a running server; needs --policy"
    )
    group.add_argument(
        "--server-pid", type=int, metavar="PID", help="process of that server, to measure its CPU and memory"
    )
    group.add_argument(
        "--repository", type=Path, metavar="DIR", help="serve the policies of this folder; needs --policy"
    )
    group.add_argument("--policy", metavar="NAME", help="ask this policy instead of the harness's own")
    group.add_argument(
        "--python",
        default=sys.executable,
        metavar="PATH",
        help="measure another build: its interpreter, or the folder of its checkout",
    )
    group.add_argument(
        "--serve-option",
        action="append",
        default=[],
        metavar="OPTION",
        help="pass this to policybridge serve; repeatable",
    )


def _add_single(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("of one scenario")
    group.add_argument(
        "--workers", default="1,2", metavar="LIST", help="workers: the numbers of workers (default: 1,2)"
    )
    group.add_argument("--count", type=int, default=1000, help="sessions: the number of sessions (default: 1000)")
    group.add_argument("--launcher", type=Path, metavar="FILE", help="launcher: the program policybridge-run")
    group.add_argument("--compiler", default="clang-22", help="launcher, store, embedded: the compiler (clang-22)")
    group.add_argument("--corpus", type=Path, metavar="DIR", help="store, embedded: compile 100 modules of this corpus")
    group.add_argument("--store", type=Path, metavar="FILE", help="store: the decisions")
    group.add_argument(
        "--plugins", type=Path, metavar="DIR", help="store, embedded: the folder of policybridge-inliner-MAJOR.so"
    )
    group.add_argument("--embedded", type=Path, metavar="FILE", help="embedded: the plugin of policybridge embed")


def _add_output(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("output, beside the table")
    group.add_argument("--json", type=Path, metavar="FILE")
    group.add_argument("--csv", type=Path, metavar="FILE")
    group.add_argument("--html", type=Path, metavar="FILE", help="with plots, in one file")


def run(arguments: argparse.Namespace) -> int:
    """Measure; return 0, 1 if --compare found B worse, 2 after an error."""
    try:
        if arguments.compare:
            chosen = load_part("policybridge_bench.compare:run [bench]", "--compare")
        else:
            chosen = arguments.scenarios.load(arguments.scenario)
        return cast("Callable[[argparse.Namespace], int]", chosen)(arguments)
    except PolicyBridgeError as error:
        sys.stderr.write(f"policybridge bench: {error}\n")
        return 2
