"""The tables of a score, for the terminal and for the page."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from policybridge_train.scoring.results import Comparison, Measure, ModuleRow, Row, Scores
from policybridge_train.scoring.statistics import Change, Estimate, change

MEASURES: Final[Sequence[Measure]] = ("spill cost", "text", "exec", "linked text", "linked exec", "compile seconds")
_GROUPED: Final[Sequence[Measure]] = ("spill cost", "text", "exec", "linked text", "linked exec")
_REGRESSED: Final[Sequence[Measure]] = ("spill cost", "text", "linked text")
WORST: Final = 10
_SMALL: Final = 0.00005


@dataclass(frozen=True)
class Grid:
    """A table: a title, the names of the columns, and rows of words. The first column is aligned to the left."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


def compare(comparison: Comparison, measure: Measure, **only: str) -> Change | None:
    """Give the change of a measure over those rows; ``None`` without rows. See `Comparison.values`."""
    rows = list(comparison.values(measure, **only))
    if not rows:
        return None
    return change([old for _, old, _ in rows], [new for _, _, new in rows], [row.project for row, _, _ in rows])


def titled(comparison: Comparison) -> str:
    """Give a comparison's name."""
    way = f" ({comparison.way})" if comparison.way in ("plugin", "interactive") else ""
    return f"{comparison.candidate}{way} against {comparison.baseline}, {comparison.compiler}"


def whole(comparison: Comparison) -> Grid:
    """Make the table of all measures over the whole corpus."""
    rows = [_measure_row(measure, found) for measure in MEASURES if (found := compare(comparison, measure))]
    columns = ("measure", "of", "before", "after", "total", "95 %", "mean", "95 %", "median", "less", "more", "same")
    identical = sum(row.identical for row in comparison.modules)
    compared = sum(row.ok for row in comparison.modules)
    made = "programs" if _is_linked(comparison) else "objects"
    note = f"{identical:,} of {compared:,} {made} are identical, byte for byte; {comparison.version}"
    if any(row.before.cached for row in comparison.modules):
        note += "; compile seconds of the baseline are partly those of an earlier run (--no-cache measures them again)"
    return Grid(titled(comparison), columns, rows, note)


def _measure_row(measure: Measure, found: Change) -> list[str]:
    number = number_format(measure)
    sums = [number.format(value) for value in (found.before, found.after)]
    counts = [f"{value:,}" for value in (found.wins, found.losses, found.same)]
    changes = [percent(found.total), interval(found.total), percent(found.mean), interval(found.mean)]
    return [measure, f"{found.count:,}", *sums, *changes, percent(found.median), *counts]


def percent(estimate: Estimate | None) -> str:
    """Give a change in percent."""
    return "" if estimate is None else in_percent(estimate.value)


def interval(estimate: Estimate | None) -> str:
    """Give a change's interval in percent."""
    return "" if estimate is None else f"{in_percent(estimate.low)} … {in_percent(estimate.high)}"


def in_percent(value: float) -> str:
    """Give a fraction in percent: ``0`` for exactly 0, and as many digits as show that it is not 0."""
    if not value:
        return "0"
    digits = 2 if abs(value) >= _SMALL else 5
    return f"{value:+.{digits}%}".replace("-", "−")


def grouped(comparison: Comparison, by: str) -> Grid:
    """Make the table by ``project`` or ``language``."""
    names = sorted({getattr(row, by) for row in comparison.modules})
    measures = [measure for measure in _GROUPED if any(comparison.values(measure))]
    of = "programs" if _is_linked(comparison) else "modules"
    columns = (by, of, *measures, f"{measures[0]}, 95 %", "less", "more", "same") if measures else (by,)
    return Grid(f"by {by}: total change", columns, [_group_row(comparison, by, name, measures) for name in names])


def _is_linked(comparison: Comparison) -> bool:
    """Tell whether LTO optimised whole programs."""
    return any(row.kind == "program" for row in comparison.modules)


def _group_row(comparison: Comparison, by: str, name: str, measures: Sequence[Measure]) -> list[str]:
    changes = [compare(comparison, measure, **{by: name}) for measure in measures]
    totals = [percent(found.total) if found else "" for found in changes]
    first = changes[0] if changes else None
    if first is None:
        return [name, "0", *totals, "", "", "", ""] if measures else [name]
    counts = [f"{value:,}" for value in (first.wins, first.losses, first.same)]
    return [name, f"{first.count:,}", *totals, interval(first.total), *counts]


def worst(comparison: Comparison, measure: Measure, count: int = WORST) -> list[tuple[Row, float, float]]:
    """Give the rows that grew most, the worst first."""
    grown = [each for each in comparison.values(measure) if each[2] > each[1]]
    return sorted(grown, key=lambda each: each[1] - each[2])[:count]


def regressions(comparison: Comparison, count: int = WORST) -> Iterator[tuple[str, str]]:
    """Give the worst regressions: a line for each, and the shell command that repeats it."""
    for measure in _REGRESSED:
        for row, old, new in worst(comparison, measure, count):
            share = in_percent(new / old - 1) if old else "from nothing"
            number = number_format(measure)
            sizes = f"{number.format(old)} → {number.format(new)} ({share})"
            yield f"{_kind(row)} {name_of(row)}: {measure} {sizes}", row.repeat


def name_of(row: Row) -> str:
    """Give the name of a module or a program."""
    return row.module if isinstance(row, ModuleRow) else row.program


def _kind(row: Row) -> str:
    return row.kind if isinstance(row, ModuleRow) else "program"


def number_format(measure: Measure) -> str:
    """Give the format of a measure's values."""
    return "{:,.2f}" if measure in ("spill cost", "compile seconds") else "{:,.0f}"


def failures(scores: Scores) -> Grid:
    """Make the table of failures and of the linker's complaints."""
    rows = [row for comparison in scores.comparisons for row in _failures(comparison)]
    rows += [["", "corpus", name, reason] for name, reason in scores.excluded.items()]
    return Grid("what failed", ("comparison", "of", "name", "reason"), rows)


def _failures(comparison: Comparison) -> Iterator[list[str]]:
    name = titled(comparison)
    for module in comparison.modules:
        if not module.ok:
            yield [name, module.kind, module.module, module.reason]
    for program in comparison.programs:
        lacking = f"{len(program.missing)} of its modules have no object and are left out" if program.missing else ""
        reason = "; ".join(filter(None, [lacking, program.reason]))
        if reason:
            yield [name, "program", program.program, reason]
