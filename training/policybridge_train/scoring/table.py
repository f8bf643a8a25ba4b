"""A score on the terminal."""

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table
from rich.text import Text

from policybridge_train.scoring.results import Comparison, Scores
from policybridge_train.scoring.summary import Grid, failures, grouped, regressions, whole

_SHOWN = 20
"""Failures that the terminal shows; the page and the JSON file have all."""
_WORST = 5


def print_scores(scores: Scores, console: Console) -> None:
    """Print the tables of each comparison, and what failed."""
    if not console.is_terminal:
        console = Console(file=console.file, width=220)
    for comparison in scores.comparisons:
        _print_comparison(comparison, console)
    failed = failures(scores)
    if failed.rows:
        print_grid(Grid(f"{failed.title}: {len(failed.rows):,}", failed.columns, failed.rows[:_SHOWN]), console)
        if len(failed.rows) > _SHOWN:
            console.print(
                f"… and {len(failed.rows) - _SHOWN:,} more: --json FILE and --html FILE have them all", markup=False
            )


def _print_comparison(comparison: Comparison, console: Console) -> None:
    for grid in (whole(comparison), grouped(comparison, "project"), grouped(comparison, "language")):
        print_grid(grid, console)
    for told, repeat in regressions(comparison, _WORST):
        console.print(_shown(f"worse: {told}"))
        # As it is, without line breaks of ours: it is to be copied.
        console.print(_shown(f"  {repeat}"), soft_wrap=True)


def print_grid(grid: Grid, console: Console) -> None:
    """Print a table."""
    table = Table(title=_shown(grid.title), title_justify="left", box=SIMPLE, padding=(0, 0, 0, 1))
    for index, column in enumerate(grid.columns):
        numbers = index and all(_is_number(row[index]) for row in grid.rows)
        table.add_column(Text(column), justify="right" if numbers else "left")
    for row in grid.rows:
        table.add_row(*map(_shown, row))
    console.print(table)
    if grid.note:
        console.print(_shown(f" {grid.note}"))


def _shown(words: str) -> Text:
    # Names in a corpus and messages may have any bytes, those that a terminal obeys too.
    return Text("".join(one if one.isprintable() else repr(one)[1:-1] for one in words))


def _is_number(word: str) -> bool:
    return not word.strip("+−-0123456789.,% …")
