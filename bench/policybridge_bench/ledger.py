"""Decisions with and without a ledger, from one interleaved run.

    python -m policybridge_bench.ledger [--rounds 9] [--seconds 1] [--clients 16] [--json FILE]

Two servers, one that records and one that does not, are asked in turn, first one and then the other before; ratios are
taken within a round, and their medians printed. Aim: the p50 of one client within 15 %.
"""

import argparse
import json
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from policybridge_bench.network import write_network
from policybridge_bench.session import Measured, measured, process
from policybridge_server.ledger.reader import LedgerReader

_POLICY = "packed"


@dataclass(frozen=True)
class Addresses:
    """Where the two servers are, and the file that one of them writes."""

    plain: tuple[str, str]
    recording: tuple[str, str]
    ledger: Path


@contextmanager
def servers() -> Iterator[Addresses]:
    """Start both."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pb-")))
        write_network(folder / "policies", _POLICY)
        serve = ["policybridge_client.cli", "serve", "--repository", str(folder / "policies"), "--grpc", "127.0.0.1:0"]
        ledger = folder / "ledger.db"
        plain = stack.enter_context(process(*serve, "--socket", str(folder / "plain.sock")))
        recording = stack.enter_context(
            process(*serve, "--socket", str(folder / "recording.sock"), "--ledger", str(ledger))
        )
        yield Addresses((plain[0], plain[1]), (recording[0], recording[1]), ledger)


Case = tuple[str, int, int]
"""Kind of client, number of clients, and which address: 0 is gRPC, 1 the socket."""


def cases(clients: int) -> dict[str, Case]:
    """Give what is measured, by its name."""
    return {
        "socket, 1 client": ("wire", 1, 1),
        f"socket, {clients} clients": ("wire", clients, 1),
        "gRPC session, 1 Python client": ("session", 1, 0),
    }


def one_round(where: Addresses, case: Case, seconds: float, turned: bool) -> tuple[Measured, Measured]:
    """Measure one case on both servers: without and with the ledger."""
    kind, clients, which = case
    order = [where.recording, where.plain] if turned else [where.plain, where.recording]
    first, second = (measured(kind, addresses[which], _POLICY, clients, seconds) for addresses in order)
    return (second, first) if turned else (first, second)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0, help="for each case in each round")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--json", type=Path, help="write all figures there")
    arguments = parser.parse_args()
    with servers() as where:
        all_cases = cases(arguments.clients)
        rounds = [
            {name: one_round(where, case, arguments.seconds, bool(n % 2)) for name, case in all_cases.items()}
            for n in range(arguments.rounds)
        ]
        for name in all_cases:
            _print(name, [each[name] for each in rounds])
        _print_size(where.ledger)
    if arguments.json:
        plain = [{name: [vars(one) for one in both] for name, both in each.items()} for each in rounds]
        arguments.json.write_text(json.dumps(plain, indent=1))


def _print(name: str, rounds: list[tuple[Measured, Measured]]) -> None:
    for place, which in enumerate(("without", "with")):
        p50, p99, rate = (median(getattr(each[place], field) for each in rounds) for field in ("p50", "p99", "rate"))
        print(f"{name:<32} {which:8} p50 {p50:7.1f} µs  p99 {p99:7.1f} µs  {rate:9,.0f} decisions/s")
    for field in ("p50", "p99", "rate"):
        ratios = sorted(getattr(recorded, field) / getattr(plain, field) for plain, recorded in rounds)
        print(f"{name:<32} with / without, {field:4} {median(ratios):5.2f}   ({ratios[0]:.2f} to {ratios[-1]:.2f})")


def _print_size(ledger: Path) -> None:
    with LedgerReader(ledger) as reader:
        found = list(reader.sessions())
    decisions, lost = sum(session.decisions for session in found), sum(session.lost for session in found)
    size = ledger.stat().st_size
    print(
        f"{decisions:,} decisions recorded ({lost:,} lost) in {size / 1e6:,.1f} MB: {size / decisions:.0f} bytes each"
    )


if __name__ == "__main__":
    main()
