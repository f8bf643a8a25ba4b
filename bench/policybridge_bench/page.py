"""A page with plots, in one file that needs no network."""

import io
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import numpy as np
import plotly.graph_objects as plots
from rich.console import Console

from policybridge_bench.results import SHARES, Measured, Run
from policybridge_bench.table import by_generator, table

_HEAD: Final = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>policybridge bench</title>
<style>body {{ font: 15px sans-serif; margin: 2em auto; max-width: 75em }}</style></head><body>
<h1>policybridge bench</h1>
<p>{about}</p>
"""


def write_page(run: Run, file: Path) -> None:
    """Write the page."""
    about = {**run.machine, "regime": run.regime, "seconds a round": f"{run.seconds:g}"}
    parts = [_HEAD.format(about=escape(", ".join(f"{name} {value}" for name, value in about.items())))]
    parts += [f"<p>without {escape(name)}: {escape(reason)}</p>" for name, reason in run.skipped.items()]
    for number, (generator, cases) in enumerate(by_generator(run.cases).items()):
        parts.append(f"<h2>load generator: {escape(generator)}</h2>")
        # The library that draws is 4 MB, so it is in the page once.
        parts += [
            figure.to_html(full_html=False, include_plotlyjs=not number and not place)
            for place, figure in enumerate(_figures(cases))
        ]
        parts.append(_table(generator, cases))
    parts += [f"<p>{escape(name)}: {value:,.2f}</p>" for name, value in run.figures.items()]
    parts += ["</body></html>\n"]
    file.write_text("".join(parts), encoding="utf-8")


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
