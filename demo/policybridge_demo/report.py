"""Output for the terminal: a progress bar while the compilers run, and tables at the end."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from policybridge_demo.result import DemoResult, Sums

_T = TypeVar("_T")


def progress(items: Iterable[_T], what: str, total: int, console: Console) -> Iterator[_T]:
    """Yield ``items`` and show a progress bar if ``console`` is a terminal."""
    columns = (TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        yield from bar.track(items, total=total, description=what)


def print_result(result: DemoResult, console: Console) -> None:
    """Print a row for each library, then the figures of the whole run."""
    title = f"{result.compiler} -Oz, inlining decided by the policy {result.policy}"
    title += f", exported to {result.backend}" if result.backend else ""
    # Above the table, and not its title, which would be broken at the table's width.
    console.print(title, style="italic", highlight=False, soft_wrap=True)
    console.print(_libraries(result))
    console.print(_whole(result))


def _libraries(result: DemoResult) -> Table:
    table = Table(box=SIMPLE, padding=(0, 0, 0, 1))
    table.add_column("library", no_wrap=True)
    for heading in ("modules", "decisions", "inlined", "agreed", "-Oz text", "text", "change"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, sums in result.libraries.items():
        table.add_row(name, *_cells(sums))
    table.add_section()
    table.add_row("all", *_cells(result.total), style="bold")
    return table


def _cells(sums: Sums) -> list[str]:
    return [
        f"{sums.modules:,}",
        f"{sums.decisions:,}",
        _share(sums.inlined / sums.decisions if sums.decisions else None),
        _share(sums.agreement),
        f"{sums.plain_text:,}",
        f"{sums.text:,}",
        f"{sums.text / sums.plain_text - 1:+.2%}",
    ]


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _whole(result: DemoResult) -> Table:
    p50, p99 = result.latency_us
    total = result.total
    grid = Table.grid(padding=(0, 2))
    grid.add_row("decisions/s", f"{result.rate:,.0f} while {result.jobs} compilers at a time ran and asked")
    grid.add_row("latency", f"p50 {p50:,.0f} µs, p99 {p99:,.0f} µs")
    grid.add_row("code size", f"{total.text:,} bytes of text, {total.plain_text:,} at plain -Oz")
    grid.add_row("agreement", f"{_share(total.agreement)} of the decisions are LLVM's own too")
    grid.add_row("identical", f"{total.identical} of {total.modules} objects are the same as without the policy")
    grid.add_row("fallbacks", f"{len(result.fallbacks)}")
    grid.add_row("time", f"{result.plain_seconds:.1f} s plain, {result.seconds:.1f} s asking")
    return grid
