"""The live tables on the terminal, one for each load generator."""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table

from policybridge_bench.ratios import Baseline, find_baseline, ratio
from policybridge_bench.results import Measured

Show = Callable[[list[Measured], str], None]

_COLUMNS: Final = ("p50 µs", "p90", "p99", "p99.9", "decisions/s", "CPU µs: client", "server", "RSS MB")


@contextlib.contextmanager
def live(baseline: Baseline | None) -> Iterator[Show]:
    """Give a function that shows the results so far; without a terminal, print them once at the end."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=220)
        yield lambda measured, status: None if status else console.print(tables(measured, status, baseline))
        return
    with Live(console=console, vertical_overflow="visible") as display:
        yield lambda measured, status: display.update(tables(measured, status, baseline))


def by_generator(measured: Sequence[Measured]) -> Mapping[str, list[Measured]]:
    """Group the cases that have rounds by their load generator.

    Each generator adds its own time to a latency, so cases of two generators cannot be compared.
    """
    groups: dict[str, list[Measured]] = {}
    for each in measured:
        if each.rounds:
            groups.setdefault(each.case.generator, []).append(each)
    return groups


def tables(measured: Sequence[Measured], status: str, baseline: Baseline | None) -> Group:
    """Draw a table for each generator: medians over the rounds; with a ``baseline``, also the ratios to it."""
    drawn = [table(generator, group, baseline) for generator, group in by_generator(measured).items()]
    return Group(*drawn, *([status] if status else []))


def table(generator: str, measured: Sequence[Measured], baseline: Baseline | None) -> Table:
    """Draw the table of one generator."""
    drawn = Table(title=f"load generator: {generator}")
    drawn.add_column("case", no_wrap=True)
    for column in _COLUMNS:
        drawn.add_column(column, justify="right")
    if baseline is not None:
        drawn.add_column(f"p50 / {baseline}", justify="right")
        drawn.add_column("decisions/s /", justify="right")
    for each in measured:
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


def _ratios(each: Measured, measured: Sequence[Measured], baseline: Baseline | None) -> list[str]:
    if baseline is None:
        return []
    base = find_baseline(each.case, measured, baseline)
    if base is None or not base.rounds:
        return ["", ""]
    return [f"{ratio(each, base, 'p50'):.2f}", f"{ratio(each, base, 'throughput'):.2f}"]
