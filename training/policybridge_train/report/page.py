"""A training run as a page with plots, in one file that needs no network."""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import numpy as np
import plotly.graph_objects as plots

from policybridge_core.report_page import ReportPage
from policybridge_train.report.run import FlipRow, TrainingRun

_MOST_FEATURES: Final = 12


def write_report(run: TrainingRun, file: Path) -> None:
    """Write the page.

    Raises:
        OSError: it cannot be written.

    """
    page = ReportPage(run.title)
    page.table(("", ""), run.facts.items())
    page.draw(_figures(run))
    columns = ("iteration", "version", "compiles", "seconds", *run.measures)
    page.table(columns, _iterations(run), "iterations")
    columns = ("project", "language", "measure", "before", "after", "change")
    page.table(columns, _projects(run), "the best version by project")
    page.write(file)


def _iterations(run: TrainingRun) -> Iterator[Sequence[str]]:
    changes = [run.changes(measure) for measure in run.measures]
    for index, each in enumerate(run.iterations):
        told = (_percent(values[index]) for values in changes)
        yield (str(each.number), str(each.version), f"{each.compiles:,}", f"{each.seconds:,.0f}", *told)


def _projects(run: TrainingRun) -> Iterator[Sequence[str]]:
    for row in run.projects:
        change = _percent(row.after / row.before - 1) if row.before else ""
        yield (row.project, row.language, row.measure, f"{row.before:,.0f}", f"{row.after:,.0f}", change)


def _figures(run: TrainingRun) -> Iterator[Any]:
    for measure in run.measures:
        yield _curve(run, measure)
    if run.flips:
        yield _flips(run.flips)


def _curve(run: TrainingRun, measure: str) -> Any:
    title = f"{measure} of the validation projects: change in percent by compiles"
    drawn = plots.Figure(layout={"title": escape(title), "height": 480})
    compiles = [each.compiles for each in run.iterations]
    whole = [100 * value for value in run.changes(measure)]
    best = np.fmin.accumulate(whole).tolist() if whole else []
    drawn.add_scatter(x=compiles, y=whole, mode="lines+markers", name="all", line={"width": 3})
    drawn.add_scatter(x=compiles, y=best, mode="lines", name="best so far", line={"dash": "dot", "shape": "hv"})
    for project in sorted({name for each in run.iterations for name in each.costs}):
        values = [100 * value for value in run.changes(measure, project)]
        drawn.add_scatter(x=compiles, y=values, mode="lines", name=escape(project), opacity=0.6)
    drawn.update_yaxes(zeroline=True, zerolinewidth=2)
    return drawn


def _flips(rows: Sequence[FlipRow]) -> Any:
    """Draw the features that differ most where the policy departs from the compiler."""
    by_feature: dict[str, list[FlipRow]] = {}
    for row in rows:
        by_feature.setdefault(row.feature, []).append(row)
    names = sorted(by_feature, key=lambda name: -_spread(by_feature[name]))[:_MOST_FEATURES]
    labels = [f"{name} {row.low:g} … {row.high:g}" for name in names for row in by_feature[name]]
    drawn = plots.Figure(layout={"title": "decisions that are not the compiler's, in percent", "barmode": "stack"})
    for side in ("to_yes", "to_no"):
        values = [100 * getattr(row, side) / row.decisions for name in names for row in by_feature[name]]
        drawn.add_bar(x=values, y=list(map(escape, labels)), orientation="h", name=side.replace("_", " "))
    drawn.update_layout(height=220 + 18 * len(labels))
    drawn.update_yaxes(autorange="reversed", automargin=True)
    return drawn


def _spread(rows: Sequence[FlipRow]) -> float:
    shares = [(row.to_yes + row.to_no) / row.decisions for row in rows]
    return max(shares) - min(shares)


def _percent(fraction: float) -> str:
    return f"{100 * fraction:+.2f} %"
