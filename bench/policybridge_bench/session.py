"""Sessions beside bare echoes over the same transport: the ratios that PolicyBridge promises, from one interleaved run.

    python -m policybridge_bench.session [--rounds 5] [--seconds 1] [--json FILE]

Each round measures every case once, one after the other; ratios are taken within a round, and their medians printed.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from policybridge_bench.drive import command, drive
from policybridge_bench.load import Load
from policybridge_bench.network import SIGNATURE, observations, write_network
from policybridge_bench.processes import module, server
from policybridge_serdes import PolicyReference
from policybridge_server.backends.contract import Batch, SessionView, load_backend
from policybridge_server.repository import Repository


@dataclass(frozen=True)
class Measured:
    """One case in one round: p50 and p99 in µs, decisions/s of all its clients together."""

    p50: float
    p99: float
    rate: float


@contextmanager
def process(*arguments: str) -> Iterator[Sequence[str]]:
    """Run a server; give the addresses of its ready line."""
    with server(module(*arguments)) as started:
        yield started.addresses


def measured(kind: str, address: str, policy: str, clients: int, seconds: float) -> Measured:
    """Let so many clients of a kind (see clients.py) ask at once, each in a process of its own."""
    seen = drive(command(Load(kind=kind, address=address, policy=policy, seconds=seconds)), clients)
    return Measured(seen.p50, seen.p99, seen.throughput)


def model_alone(repository: Path, policy: str) -> float:
    """Give the p50 of one evaluation in this process, in µs: what no server can go below."""
    stored = Repository([repository]).resolve(PolicyReference(policy))
    model = load_backend(stored.config.backend).load(stored.folder, stored.config)
    view = SessionView("bench", stored.policy)
    batches = [
        Batch(np.ndarray(1, SIGNATURE.features.dtype, row.tobytes()), [view], SIGNATURE.advice_layout)
        for row in observations(2000)
    ]
    return median(_microseconds(model.evaluate, batch) for batch in batches)


def _microseconds(call: object, argument: object) -> float:
    started = time.perf_counter()
    call(argument)  # type: ignore[operator]
    return (time.perf_counter() - started) * 1e6


@dataclass(frozen=True)
class Addresses:
    """Where the servers of one run are."""

    repository: Path
    grpc: str
    socket: str
    echo_socket: str
    echo_grpc: str


def one_round(where: Addresses, seconds: float) -> dict[str, Measured]:
    """Measure every case once."""
    return {
        "socket echo, 1 client": measured("wire", where.echo_socket, "", 1, seconds),
        "socket, 1 client": measured("wire", where.socket, "packed", 1, seconds),
        "socket, 16 clients": measured("wire", where.socket, "packed", 16, seconds),
        "socket, 1 Python client": measured("session", where.socket, "packed", 1, seconds),
        "socket, 38 named inputs, 1 client": measured("wire", where.socket, "named", 1, seconds),
        "gRPC stream echo, 1 Python client": measured("session", where.echo_grpc, "packed", 1, seconds),
        "gRPC session, 1 Python client": measured("session", where.grpc, "packed", 1, seconds),
    }


def ratios(case: dict[str, Measured], model: float) -> dict[str, float]:
    """Give what is promised, each to be held against its bound."""
    echo, grpc_echo = case["socket echo, 1 client"].p50, case["gRPC stream echo, 1 Python client"].p50
    return {
        "16 clients / 1 client, decisions/s (at least 3)": (
            case["socket, 16 clients"].rate / case["socket, 1 client"].rate
        ),
        "socket: (p50 - model) / bare echo (at most 3)": (case["socket, 1 client"].p50 - model) / echo,
        "socket, Python client: (p50 - model) / bare echo (at most 3)": (
            (case["socket, 1 Python client"].p50 - model) / echo
        ),
        "gRPC session: (p50 - model) / stream echo (at most 1.5)": (
            (case["gRPC session, 1 Python client"].p50 - model) / grpc_echo
        ),
    }


@contextmanager
def servers() -> Iterator[Addresses]:
    """Start the policy server and the echoes."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pb-")))
        write_network(folder, "packed")
        write_network(folder, "named", packed=False)
        listen = ["--grpc", "127.0.0.1:0", "--socket", str(folder / "policy.sock")]
        serve = process("policybridge_client.cli", "serve", "--repository", str(folder), *listen)
        grpc, socket = stack.enter_context(serve)
        (echo_socket,) = stack.enter_context(
            process("policybridge_bench.echoes", "socket", str(folder / "echo.sock"), str(SIGNATURE.features.size))
        )
        (echo_grpc,) = stack.enter_context(process("policybridge_bench.echoes", "grpc"))
        yield Addresses(folder, grpc, socket, echo_socket, echo_grpc)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each case in each round")
    parser.add_argument("--json", type=Path, help="write all figures there")
    arguments = parser.parse_args()
    with servers() as where:
        model = model_alone(where.repository, "packed")
        rounds = [one_round(where, arguments.seconds) for _ in range(arguments.rounds)]
    _report(model, rounds)
    if arguments.json:
        cases = [{name: vars(measured) for name, measured in each.items()} for each in rounds]
        arguments.json.write_text(json.dumps({"model": model, "rounds": cases}, indent=1))


def _report(model: float, rounds: list[dict[str, Measured]]) -> None:
    print(f"{'model alone':<40} p50 {model:7.1f} µs")
    for name in rounds[0]:
        p50, p99 = (median(getattr(each[name], field) for each in rounds) for field in ("p50", "p99"))
        rate = median(each[name].rate for each in rounds)
        print(f"{name:<40} p50 {p50:7.1f} µs  p99 {p99:7.1f} µs  {rate:9,.0f} decisions/s")
    for name in ratios(rounds[0], model):
        own = sorted(ratios(each, model)[name] for each in rounds)
        print(f"{name:<62} {median(own):5.2f}   ({own[0]:.2f} to {own[-1]:.2f})")


if __name__ == "__main__":
    main()
