"""A score as a page with plots, in one file that needs no network."""

from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any, Final

import plotly.graph_objects as plots

from policybridge_core.report_page import ReportPage
from policybridge_train.scoring.results import Comparison, Measure, Row, Scores
from policybridge_train.scoring.summary import Grid, compare, failures, grouped, name_of, regressions, titled, whole

_SIZES: Final[tuple[Measure, ...]] = ("text", "linked text")


def write_page(scores: Scores, file: Path) -> None:
    """Write the page.

    Raises:
        OSError: it cannot be written.

    """
    page = ReportPage("policybridge score")
    page.add("p", f"{scores.corpus}; task {scores.task}; linked by {scores.linker or 'nothing'}")
    for comparison in scores.comparisons:
        page.add("h2", titled(comparison))
        _add_grid(page, whole(comparison))
        page.draw(_figures(comparison))
        _add_grid(page, grouped(comparison, "project"))
        _add_grid(page, grouped(comparison, "language"))
        _add_regressions(page, comparison)
    _add_grid(page, failures(scores), words=True)
    page.write(file)


def _add_grid(page: ReportPage, grid: Grid, *, words: bool = False) -> None:
    page.table(grid.columns, grid.rows, grid.title, words=words)
    if grid.rows and grid.note:
        page.add("p", grid.note)


def _figures(comparison: Comparison) -> Iterator[Any]:
    for measure in _SIZES:
        if any(comparison.values(measure)):
            yield _sorted_changes(comparison, measure)
    if comparison.scored:
        yield _over_sizes(comparison)
        yield _projects(comparison)
        yield _sections(comparison)


def _sorted_changes(comparison: Comparison, measure: Measure) -> Any:
    changes = sorted((100 * (new / old - 1), _name(row)) for row, old, new in comparison.values(measure) if old)
    points = plots.Scatter(
        y=[value for value, _ in changes], text=[name for _, name in changes], mode="lines+markers", name=measure
    )
    unit = "program" if measure.startswith("linked") else "module"
    drawn = plots.Figure(points, {"title": f"{measure}: change of each {unit} in percent, sorted", "height": 420})
    drawn.update_yaxes(zeroline=True, zerolinewidth=2)
    return drawn


def _over_sizes(comparison: Comparison) -> Any:
    drawn = plots.Figure(layout={"title": "text: change in percent by the module's size (bytes)", "height": 480})
    for language in sorted({row.language for row in comparison.modules}):
        rows = [each for each in comparison.values("text", language=language) if each[1]]
        drawn.add_scatter(
            x=[old for _, old, _ in rows],
            y=[100 * (new / old - 1) for _, old, new in rows],
            text=[_name(row) for row, _, _ in rows],
            mode="markers",
            name=language or "unknown",
        )
    drawn.update_xaxes(type="log")
    return drawn


def _projects(comparison: Comparison) -> Any:
    names = sorted({row.project for row in comparison.modules})
    drawn = plots.Figure(layout={"title": "total change by project in percent, 95 %", "height": 220 + 40 * len(names)})
    for measure in _SIZES:
        found = {name: compare(comparison, measure, project=name) for name in names}
        totals = {name: each.total for name, each in found.items() if each and each.total}
        spread = {
            "type": "data",
            "symmetric": False,
            "array": [100 * max(0.0, each.high - each.value) for each in totals.values()],
            "arrayminus": [100 * max(0.0, each.value - each.low) for each in totals.values()],
        }
        values = [100 * each.value for each in totals.values()]
        drawn.add_bar(x=values, y=list(map(escape, totals)), orientation="h", name=measure, error_x=spread)
    drawn.update_yaxes(autorange="reversed", automargin=True)
    return drawn


def _sections(comparison: Comparison) -> Any:
    sums: dict[str, list[int]] = {}
    for row in comparison.modules:
        if row.ok:
            for side, measured in enumerate((row.before, row.after)):
                for name, size in measured.sections.items():
                    sums.setdefault(_family(name), [0, 0])[side] += size
    names = sorted(sums, key=lambda name: -sums[name][0])
    drawn = plots.Figure(layout={"title": "bytes by section, per object, summed", "height": 420, "barmode": "group"})
    for side, who in enumerate((comparison.baseline, comparison.candidate)):
        drawn.add_bar(x=list(map(escape, names)), y=[sums[name][side] for name in names], name=escape(who))
    return drawn


def _family(section: str) -> str:
    """Give ``.text`` for ``.text.main``: with -ffunction-sections, each function has a section of its own."""
    return "." + section.lstrip(".").partition(".")[0] if section.startswith(".") else section


def _name(row: Row) -> str:
    return escape(name_of(row))


def _add_regressions(page: ReportPage, comparison: Comparison) -> None:
    for number, (line, repeat) in enumerate(regressions(comparison)):
        if not number:
            page.add("h3", "worst regressions")
        page.add("p", line)
        page.add("pre", repeat)
