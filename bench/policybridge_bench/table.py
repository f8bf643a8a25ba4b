"""The table on the terminal, as it fills."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

from policybridge_bench.extras import library
from policybridge_bench.results import Case, Measured

Show = Callable[[list[Measured], str], None]

_COLUMNS = ("p50 µs", "p90", "p99", "p99.9", "decisions/s", "CPU µs: client", "server", "RSS MB")


@contextlib.contextmanager
def live(baseline: Case | None) -> Iterator[Show]:
    """Give what shows results on the terminal: as they come, or once at the end where that is no terminal."""
    console = library("rich.console").Console()
    if not console.is_terminal:
        console = library("rich.console").Console(width=200)
        yield lambda measured, status: None if status else console.print(table(measured, status, baseline))
        return
    with library("rich.live").Live(console=console, vertical_overflow="visible") as display:
        yield lambda measured, status: display.update(table(measured, status, baseline))


def table(measured: Sequence[Measured], status: str, baseline: Case | None) -> Any:
    """Draw it: medians over the rounds; with a ``baseline``, also each case's p50 over that of its round's baseline."""
    drawn = library("rich.table").Table(caption=status or None)
    drawn.add_column("case", no_wrap=True)
    for column in _COLUMNS:
        drawn.add_column(column, justify="right")
    if baseline is not None:
        drawn.add_column(f"p50 / {baseline.contender} {baseline.way}", justify="right")
        drawn.add_column("decisions/s /", justify="right")
    for each in measured:
        if each.rounds:
            drawn.add_row(each.case.name, *_figures(each), *_ratios(each, measured, baseline))
    return drawn


def _figures(each: Measured) -> list[str]:
    latencies = [f"{each.median(name):,.1f}" for name in ("p50", "p90", "p99", "p999")]
    cpu, rss = each.median("server_cpu"), each.median("server_rss")
    return [
        *latencies,
        f"{each.median('throughput'):,.0f}",
        f"{each.median('client_cpu'):,.1f}",
        "" if cpu is None else f"{cpu:,.1f}",
        "" if rss is None else f"{rss / 1e6:,.0f}",
    ]


def _ratios(each: Measured, measured: Sequence[Measured], baseline: Case | None) -> list[str]:
    if baseline is None:
        return []
    base = find_baseline(each.case, measured, baseline)
    if base is None or not base.rounds:
        return ["", ""]
    return [f"{ratio(each, base, 'p50'):.2f}", f"{ratio(each, base, 'throughput'):.2f}"]


def find_baseline(case: Case, measured: Sequence[Measured], baseline: Case) -> Measured | None:
    """Find the baseline's case with as many clients and the same rate; of the same payload, where it has that."""
    found = None
    for other in measured:
        same = (other.case.contender, other.case.way) == (baseline.contender, baseline.way)
        if same and (other.case.clients, other.case.rate) == (case.clients, case.rate):
            if other.case.payload == case.payload:
                return other
            found = found or other
    return found


def ratio(one: Measured, other: Measured, figure: str) -> float:
    """Give the median of the ratios within each round."""
    pairs = zip(one.rounds, other.rounds, strict=False)
    return float(median(getattr(mine, figure) / getattr(theirs, figure) for mine, theirs in pairs))
