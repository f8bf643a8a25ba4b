"""The parts of speed: our server beside others, and the bundled policy in C."""

import json
import shlex
import subprocess
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from policybridge_bench.processes import module
from policybridge_bench.results import Measured, read_json
from policybridge_core.errors import PolicyFailedError
from policybridge_docs.results.figures import Figure
from policybridge_docs.results.parts.running import CLI, Made, as_typed, bundled, run_module

_CONTENDERS: Final = "policybridge,grpc-echo/unary,triton,mosec/raw,compilerinterface,kserve,mlserver"


def speed(options: Namespace) -> Made:
    """Measure decisions of our server, of a C++ gRPC echo, and of other servers, which are downloaded.

    Raises:
        PolicyFailedError: a contender cannot run here.

    """
    words = ["peers", "--contenders", _CONTENDERS, "--ways", "socket,grpc-unix,grpc"]
    words += ["--generators", "native", "--clients", "1,8", "--rounds", str(options.rounds)]
    with TemporaryDirectory() as name:
        file = Path(name) / "run.json"
        run_module("tests.peers", *words, "--cache", options.cache, "--json", file)
        run = read_json(file)
    if run.skipped:
        raise PolicyFailedError(f"not all contenders ran: {run.skipped}")
    command = shlex.join(["python", "-m", "tests.peers", *words])
    return Made(command, {key: figure for each in run.cases for key, figure in _case(each)})


def _case(measured: Measured) -> Iterator[tuple[str, Figure]]:
    """Give the latency of one client, or the rate of several."""
    case, p50, rate = measured.case, measured.median("p50"), measured.median("throughput")
    key = f"{case.contender}.{case.way}.{case.clients}"
    if case.clients == 1 and p50 is not None:
        yield f"{key}.p50", Figure(p50, "µs")
    elif rate is not None:
        yield f"{key}.rate", Figure(rate, "decisions/s", -2)


def embedded(options: Namespace) -> Made:
    """Compile the package re2 of ``--corpus`` by the bundled policy, and decide its decisions again in C."""
    words = ["score", "--project", "re2", "--candidate", "inliner", "--compiler", "clang-22"]
    comparing = ["embed", "compare", "inliner"]
    with TemporaryDirectory() as name:
        ledger = Path(name) / "ledger.db"
        with bundled(Path(name), "--ledger", ledger) as address:
            run_module(CLI, *words, "--corpus", options.corpus, "--plugins", options.plugins, "--server", address)
        command = module(CLI, *comparing, "--ledger", ledger)
        told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    figures = {
        "decisions": Figure(told["observations"], "decisions"),
        "different": Figure(told["different"], "decisions"),
        "time": Figure(told["nanoseconds"] / 1000, "µs", 1),
    }
    return Made(as_typed(comparing, "--ledger FILE"), figures, decided="inliner")
