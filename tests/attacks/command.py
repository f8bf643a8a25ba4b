"""``python -m tests.attacks``: what each attack costs a client beside and the server, on both ports."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from policybridge_bench.options import names
from tests.attacks.attacks import ATTACKS
from tests.attacks.measure import Row, measure, quantile

_STALL: Final = 0.1
_TAIL: Final = 2.0
_MEMORY: Final = 100e6
_LEFT: Final = 20e6


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a table and the promises that do not hold; the exit status is 1 if there are any."""
    options = _parser().parse_args(arguments)
    rows = list(_run(options))
    if options.json is not None:
        options.json.write_bytes(msgspec.json.encode(list(map(_summary, rows))))
    console = Console(width=170)
    console.print(_table(rows))
    broken = list(judge(rows))
    for line in broken:
        console.print(line, highlight=False)
    return 1 if broken else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.attacks", description=__doc__)
    parser.add_argument("--attacks", default="all", help=f"of {', '.join(ATTACKS)}")
    parser.add_argument("--ports", default="grpc,grpcio", help="grpc is ours, grpcio is served by gRPC's own library")
    parser.add_argument("--rounds", type=int, default=1, help="of each attack; the worst of them counts")
    parser.add_argument("--seconds", type=float, default=4.0, help="for each attack (default: 4)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write a summary of the rows there")
    parser.add_argument("--python", default=sys.executable, help="interpreter or checkout of the server")
    return parser


def _run(options: argparse.Namespace) -> Iterator[Row]:
    errors = Console(stderr=True)
    for name in names(options.attacks, "attack", list(ATTACKS)):
        for number in range(options.rounds):
            for port in names(options.ports, "port", ["grpc", "grpcio"]):
                yield measure(name, port, options.seconds, options.python)
                errors.print(f"{name} on {port}, round {number + 1}: done")


def _summary(row: Row) -> dict[str, str | float]:
    """Give a row's longest waits before and during the attack in seconds, and the bytes above those before it."""
    waits = {name: max(times, default=0.0) for name, times in (("before", row.before), ("longest", row.during))}
    first, most, after = row.rss
    return {"attack": row.attack, "port": row.port, **waits, "most": most - first, "left": after - first}


def judge(rows: Sequence[Row]) -> Iterator[str]:
    """Give each promise that our port breaks.

    The promises: no decision beside waits for more than 100 ms; its p99 is at most twice what it is beside the same
    attack on the port of gRPC's library, the memory at most 100 MB more than there, and given back at the end.
    """
    for name in dict.fromkeys(row.attack for row in rows):
        ours, theirs = ([row for row in rows if (row.attack, row.port) == (name, port)] for port in ("grpc", "grpcio"))
        for row in ours:
            yield from _alone(row)
        if ours and theirs:
            yield from _beside(name, ours, theirs)


def _alone(row: Row) -> Iterator[str]:
    if row.failed:
        yield f"{row.attack}: {row.failed}"
        return
    if not row.recovered:
        yield f"{row.attack}: no new connection was answered after it"
    if (longest := max(row.during, default=0.0)) > _STALL:
        yield f"{row.attack}: a decision waited {longest * 1e3:.0f} ms; at most {_STALL * 1e3:.0f} are promised"
    if (left := row.rss[2] - row.rss[0]) > _LEFT:
        yield f"{row.attack}: {left / 1e6:.0f} MB are not given back; at most {_LEFT / 1e6:.0f} are promised"


def _beside(name: str, ours: Sequence[Row], theirs: Sequence[Row]) -> Iterator[str]:
    tails = [max((quantile(row.during, 99) for row in rows if not row.failed), default=0.0) for rows in (ours, theirs)]
    if tails[0] > _TAIL * tails[1] > 0:
        yield f"{name}: p99 is {tails[0] / tails[1]:.1f} times that on grpcio's port; at most {_TAIL:g} are promised"
    most = [max(row.rss[1] for row in rows) for rows in (ours, theirs)]
    if (more := most[0] - most[1]) > _MEMORY:
        yield f"{name}: {more / 1e6:.0f} MB more than grpcio's port; at most {_MEMORY / 1e6:.0f} are promised"


def _table(rows: Sequence[Row]) -> Table:
    columns = ("p50 before, ms", "during", "p99 before, ms", "during", "over", "longest", "connect", "refused")
    table = Table("attack", "port", *columns, "RSS MB", "most", "after")
    for row in rows:
        cells = [f"{quantile(times, percent) * 1e3:.2f}" for percent in (50, 99) for times in (row.before, row.during)]
        cells.append(f"{row.ratio(99):.1f}")
        cells += [f"{max(row.during, default=float('nan')) * 1e3:.0f}", f"{row.connecting * 1e3:.0f}"]
        cells.append(f"{row.refused}" + ("" if row.recovered else ", for ever"))
        table.add_row(row.attack, row.port, *cells, *(f"{size / 1e6:.0f}" for size in row.rss))
        if row.failed:
            table.add_row("", "", row.failed)
    return table
