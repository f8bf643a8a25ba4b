"""A page with plots, in one file that needs no network."""

import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import plotly.graph_objects as plots
from rich.console import Console

from policybridge_bench.results import SHARES, Measured, Run
from policybridge_bench.table import by_generator, table
from policybridge_core.report_page import ReportPage


def write_page(run: Run, file: Path) -> None:
    """Write the page."""
    page = ReportPage("policybridge bench")
    about = {**run.machine, "regime": run.regime, "seconds a round": f"{run.seconds:g}"}
    page.add("p", ", ".join(f"{name} {value}" for name, value in about.items()))
    for name, reason in run.skipped.items():
        page.add("p", f"without {name}: {reason}")
    for generator, cases in by_generator(run.cases).items():
        page.add("h2", f"load generator: {generator}")
        page.draw(_figures(cases))
        page.add_html(_table(generator, cases))
    for name, value in run.figures.items():
        page.add("p", f"{name}: {value:,.2f}")
    page.write(file)


def _figures(cases: Sequence[Measured]) -> Iterator[Any]:
    yield _bars(cases, "p50", "Latency, median (µs)")
    yield _bars(cases, "p99", "Latency, 99th percentile (µs)")
    yield _bars(cases, "throughput", "Decisions per second")
    yield _spectra(cases)
    yield _over_clients(cases)


def _bars(cases: Sequence[Measured], figure: str, title: str) -> Any:
    middles = [each.median(figure) or 0.0 for each in cases]
    rounds = [[getattr(one, figure) for one in each.rounds] for each in cases]
    above = [max(values) - middle for values, middle in zip(rounds, middles, strict=True)]
    below = [middle - min(values) for values, middle in zip(rounds, middles, strict=True)]
    spread = {"type": "data", "symmetric": False, "array": above, "arrayminus": below}
    bar = plots.Bar(x=middles, y=[each.case.name for each in cases], orientation="h", error_x=spread)
    drawn = plots.Figure(bar, {"title": f"{title}; the lines span all rounds", "height": 160 + 26 * len(cases)})
    drawn.update_yaxes(autorange="reversed", automargin=True)
    return drawn


def _spectra(cases: Sequence[Measured]) -> Any:
    # On this axis the tail has as much room as the middle: the 90th, 99th and 99.9th percentiles are equally far apart.
    shares = [share for share in SHARES if share < 100]
    lines = [
        plots.Scatter(
            x=[1 / (1 - share / 100) for share in shares],
            y=np.median([one.spectrum for one in each.rounds], axis=0)[: len(shares)],
            name=each.case.name,
        )
        for each in cases
    ]
    drawn = plots.Figure(lines, {"title": "Latency by percentile (µs), medians over the rounds", "height": 700})
    marks = (50, 90, 99, 99.9, 99.99)
    ticks = {"tickvals": [1 / (1 - mark / 100) for mark in marks], "ticktext": [f"{mark:g} %" for mark in marks]}
    drawn.update_xaxes(type="log", **ticks)
    drawn.update_yaxes(type="log")
    return drawn


def _over_clients(cases: Sequence[Measured]) -> Any:
    lines: dict[str, list[tuple[int, float]]] = {}
    for each in cases:
        name = each.case.name.replace(f" ×{each.case.clients}", "")
        lines.setdefault(name, []).append((each.case.clients, each.median("throughput") or 0.0))
    drawn = plots.Figure(layout={"title": "Decisions per second by the number of clients", "height": 600})
    for name, points in lines.items():
        counts, rates = zip(*sorted(points), strict=True)
        drawn.add_scatter(x=counts, y=rates, name=name)
    drawn.update_xaxes(type="log")
    return drawn


def _table(generator: str, cases: Sequence[Measured]) -> str:
    console = Console(record=True, file=io.StringIO(), width=220)
    console.print(table(generator, cases, None))
    return console.export_html(inline_styles=True, code_format="<pre>{code}</pre>")
