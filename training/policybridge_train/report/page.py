"""A training run as a page with plots, in one file that needs no network."""

from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import numpy as np
import plotly.graph_objects as plots

from policybridge_train.report.run import FlipRow, TrainingRun

_HEAD: Final = """\
<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>policybridge train</title>
<style>
body { font: 15px sans-serif; margin: 2em auto; max-width: 80em; padding: 0 1em }
table { border-collapse: collapse; margin: 1em 0; font-variant-numeric: tabular-nums }
td, th { padding: .2em .7em; text-align: right; border-bottom: 1px solid #ddd; vertical-align: top }
td:first-child, th:first-child { text-align: left }
td { overflow-wrap: anywhere }
</style></head><body>
"""
_MOST_SITES: Final = 50
_MOST_FEATURES: Final = 12


def write_report(run: TrainingRun, file: Path) -> None:
    """Write the page.

    Raises:
        OSError: it cannot be written.

    """
    file.write_text("".join(_parts(run)), encoding="utf-8", errors="backslashreplace")


def _parts(run: TrainingRun) -> Iterator[str]:
    yield f"{_HEAD}<h1>{escape(run.title)}</h1>"
    yield _table("", ("", ""), run.facts.items())
    # The library that draws is 4 MB, so it is in the page once, with the first figure.
    first = True
    for figure in _figures(run):
        yield figure.to_html(full_html=False, include_plotlyjs=first)
        first = False
    yield _table("iterations", ("iteration", "version", "compiles", "seconds", *run.measures), _iterations(run))
    columns = ("project", "language", "measure", "before", "after", "change", "95 %")
    yield _table("the best version by project", columns, _projects(run))
    yield _table("where most was saved", ("case", "caller", "callee", "compiler", "policy", "saved"), _sites(run))
    yield "</body></html>\n"


def _iterations(run: TrainingRun) -> Iterator[Sequence[str]]:
    changes = [run.changes(measure) for measure in run.measures]
    for place, each in enumerate(run.iterations):
        told = (_percent(values[place]) for values in changes)
        yield (str(each.number), str(each.version), f"{each.compiles:,}", f"{each.seconds:,.0f}", *told)


def _sites(run: TrainingRun) -> Iterator[Sequence[str]]:
    for each in sorted(run.sites, key=lambda site: -site.saved)[:_MOST_SITES]:
        yield (each.case, each.caller, each.callee, f"{each.default:g}", f"{each.decided:g}", f"{each.saved:g}")


def _projects(run: TrainingRun) -> Iterator[Sequence[str]]:
    for row in run.projects:
        sums = (f"{row.before:,.0f}", f"{row.after:,.0f}")
        found = row.change
        interval = f"{_percent(found.low)} … {_percent(found.high)}" if found else ""
        yield (row.project, row.language, row.measure, *sums, _percent(found.value) if found else "", interval)


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
    """Draw the features by which departures from the compiler differ most."""
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


def _table(title: str, columns: Sequence[str], rows: Any) -> str:
    cells = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows]
    if not cells:
        return ""
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "".join(f"<tr>{each}</tr>" for each in cells)
    return f"{f'<h3>{escape(title)}</h3>' if title else ''}<table><tr>{head}</tr>{body}</table>"
