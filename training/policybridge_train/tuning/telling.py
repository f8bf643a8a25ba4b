"""Prints a search's progress and the bytes saved so far."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from policybridge_train.compiling.module import Program
from policybridge_train.tuning.module import ModuleTuning
from policybridge_train.tuning.search import Search

_WIDTH = 220
"""Columns where the output is no terminal."""


@dataclass(frozen=True)
class _Size:
    """The bytes of one module's text and code, by LLVM's own decisions and by the best decisions found."""

    text: int
    best_text: int
    exec: int
    best_exec: int
    decisions: int
    passes: int


class Telling:
    """Shows progress while a search runs, and a table at its end."""

    def __init__(self, tunings: Sequence[ModuleTuning]) -> None:
        self._tunings = tunings
        console = Console()
        self._console = console if console.is_terminal else Console(width=_WIDTH)
        self._sizes: dict[str, _Size] = {}
        self._done: set[str] = set()
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[won]}"), TimeElapsedColumn())
        self._progress = Progress(*columns, console=self._console, transient=True)
        self._task = self._progress.add_task("tuning", total=len(tunings), won="")

    def __enter__(self) -> "Telling":
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        self._print()

    @property
    def compiled(self) -> bool:
        """Whether any module was compiled, or there are no modules."""
        return bool(self._sizes) or not self._tunings

    def stepped(self, tuning: ModuleTuning, search: Search | None) -> None:
        """Show the state of a search after one of its compiles has ended."""
        name = tuning.module.name
        if search is not None:
            best = search.best
            sizes = search.default_text, search.best_text, search.default_exec, search.best_exec
            self._sizes[name] = _Size(*sizes, len(best.inlining), sum(map(len, best.passes.values())))
        if tuning.done:
            self._done.add(name)
        won = f"{len(self._done)} of {len(self._tunings)} modules, text {self._change():+.2f} %"
        self._progress.update(self._task, completed=len(self._done), won=won)

    def _change(self) -> float:
        before = sum(size.text for size in self._sizes.values())
        return 100 * (sum(size.best_text for size in self._sizes.values()) / before - 1) if before else 0.0

    def _print(self) -> None:
        table = Table(box=SIMPLE, padding=0, show_edge=False)
        table.add_column("", overflow="fold")
        for heading in ("modules", "text", "tuned", "change", "exec", "tuned", "change", "decisions", "passes"):
            table.add_column(heading, justify="right", overflow="fold")
        groups: dict[str, list[_Size]] = {}
        for tuning in self._tunings:
            size = self._sizes.get(tuning.module.name)
            if size is not None:
                groups.setdefault(tuning.module.project, []).append(size)
        for name in sorted(groups):
            table.add_row(_shown(name), *_cells(groups[name]))
        if len(groups) > 1:
            table.add_section()
            table.add_row("all", *_cells(list(self._sizes.values())))
        if groups:
            self._console.print(table)
        for tuning in self._tunings:
            if tuning.failure:
                stands = "the best before stands" if tuning.module.name in self._sizes else "LLVM's own decisions stand"
                self._console.print(_shown(f"{tuning.failure}; {stands}"), soft_wrap=True)


def tell_programs(sizes: Sequence[tuple[Program, int, int]], refused: Collection[str]) -> None:
    """Print the programs' sizes, and the modules whose tuned decisions were withdrawn."""
    before, after = sum(before for _, before, _ in sizes), sum(after for _, _, after in sizes)
    change = f" ({100 * (after / before - 1):+.2f} %)" if before else ""
    console = Console(soft_wrap=True)
    console.print(f"linked: {len(sizes):,} programs, text {before:,}, tuned {after:,}{change}", highlight=False)
    for name in sorted(refused):
        console.print(_shown(f"{name}: LLVM's own decisions stand, because a program was larger with others"))


def _shown(words: str) -> Text:
    # Names in a corpus and messages may have any bytes, such as a terminal's control sequences.
    return Text("".join(one if one.isprintable() else repr(one)[1:-1] for one in words))


def _cells(sizes: Sequence[_Size]) -> list[str]:
    cells = [str(len(sizes))]
    for pairs in ([(one.text, one.best_text) for one in sizes], [(one.exec, one.best_exec) for one in sizes]):
        before, after = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
        cells += [f"{before:,}", f"{after:,}", f"{100 * (after / before - 1):+.2f} %" if before else ""]
    return [*cells, f"{sum(one.decisions for one in sizes):,}", f"{sum(one.passes for one in sizes):,}"]
