"""Prints a search's progress and the bytes saved so far."""

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from rich.box import SIMPLE
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from policybridge_core.json_text import json_text
from policybridge_train.compiling.linker import Unlinked
from policybridge_train.compiling.module import Program
from policybridge_train.tuning.applying import Ending
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


@dataclass(frozen=True)
class LinkedSizes:
    """Programs that were linked at the end of a search.

    Attributes:
        sizes: bytes of text of each, by LLVM's own decisions and by the store's.
        refused: the names of modules whose tuned decisions were withdrawn.
        unlinked: other programs, and why they cannot be linked.

    """

    sizes: Sequence[tuple[Program, int, int]]
    refused: Collection[str]
    unlinked: Sequence[Unlinked] = ()

    @property
    def text(self) -> tuple[int, int]:
        """The sums of the bytes before and after."""
        return sum(before for _, before, _ in self.sizes), sum(after for _, _, after in self.sizes)

    @property
    def of_unlinked(self) -> set[str]:
        """The names of the programs that cannot be linked, and of their modules."""
        programs = [each.program for each in self.unlinked]
        return {name for one in programs for name in (_name(one), *one.modules)}


class Telling:
    """Shows progress while a search runs; at its end a table, the gain, and the lines that apply the store."""

    def __init__(self, tunings: Sequence[ModuleTuning], ending: Ending, *, json: bool = False) -> None:
        self._tunings = tunings
        self._ending = ending
        self._json = json
        self._compiles: dict[str, int] = {}
        self._linked: LinkedSizes | None = None
        console = Console(stderr=json)
        self._console = console if console.is_terminal else Console(width=_WIDTH, stderr=json)
        self._sizes: dict[str, _Size] = {}
        self._done: set[str] = set()
        columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[won]}"), TimeElapsedColumn())
        self._progress = Progress(*columns, console=self._console, transient=True)
        self._task = self._progress.add_task("tuning", total=len(tunings), won="")

    def __enter__(self) -> "Telling":
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._progress.stop()
        # An interrupt leaves the best so far in the store; after another error it may not be there.
        if kind is not None and kind is not KeyboardInterrupt:
            return
        before, after = self._text
        if self._json:
            self._write_json()
            return
        for line in self._ending.lines(before, before - after, sum(self._compiles.values())):
            self._console.print(_shown(line), soft_wrap=True)

    @property
    def _text(self) -> tuple[int, int]:
        """Bytes of text by LLVM's own decisions and by the store's, of programs where programs were tuned."""
        if self._linked is not None:
            return self._linked.text
        sizes = self._sizes.values()
        return sum(one.text for one in sizes), sum(one.best_text for one in sizes)

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
            self._compiles[name] = search.spent
            self._sizes[name] = _Size(*sizes, len(best.inlining), sum(map(len, best.passes.values())))
        if tuning.done:
            self._done.add(name)
        won = f"{len(self._done)} of {len(self._tunings)} modules, text {self._change():+.2f} %"
        self._progress.update(self._task, completed=len(self._done), won=won)

    def _write_json(self) -> None:
        sizes = self._sizes.values()
        before, after = self._text
        told: dict[str, object] = {
            "store": str(self._ending.tuned.store),
            "compiler": self._ending.tuned.compiler.version,
            "modules": len(sizes),
            "compiles": sum(self._compiles.values()),
            "text": {"before": before, "after": after},
            "exec": {"before": sum(one.exec for one in sizes), "after": sum(one.best_exec for one in sizes)},
            "failures": [tuning.failure for tuning in self._tunings if tuning.failure],
            "apply": list(self._ending.applying()),
        }
        if self._linked is not None:
            told["programs"], told["refused"] = len(self._linked.sizes), sorted(self._linked.refused)
            told["unlinked"] = {
                f"{one.program.project}/{one.program.name}": one.reason for one in self._linked.unlinked
            }
        sys.stdout.buffer.write(json_text(told).encode() + b"\n")

    def _change(self) -> float:
        before = sum(size.text for size in self._sizes.values())
        return 100 * (sum(size.best_text for size in self._sizes.values()) / before - 1) if before else 0.0

    def searched(self) -> None:
        """Print the table of a search that has ended."""
        self._progress.stop()
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
        waiting = sum(not tuning.failure and tuning.module.name not in self._sizes for tuning in self._tunings)
        if waiting:
            line = f"{waiting:,} of {len(self._tunings):,} modules were not compiled yet"
            self._console.print(f"{line}: the same command goes on with them", highlight=False, soft_wrap=True)

    def linked(self, programs: LinkedSizes) -> None:
        """Print the programs' sizes, and the modules whose tuned decisions were withdrawn."""
        self._linked = programs
        before, after = programs.text
        change = f" ({100 * (after / before - 1):+.2f} %)" if before else ""
        line = f"linked: {len(programs.sizes):,} programs, text {before:,}, tuned {after:,}{change}"
        self._console.print(line, highlight=False, soft_wrap=True)
        failed = {tuning.module.name for tuning in self._tunings if tuning.failure}
        for each in programs.unlinked:
            if _name(each.program) not in failed:
                why = f"{_name(each.program)} is not linked: {each.reason}"
                self._console.print(_shown(why), soft_wrap=True)
        for name in sorted(programs.refused):
            told = "its program is not linked" if name in programs.of_unlinked else "a program was larger with others"
            why = f"{name}: LLVM's own decisions stand, because {told}"
            self._console.print(_shown(why), soft_wrap=True)


def _name(program: Program) -> str:
    return f"{program.project}/{program.name}"


def _shown(words: str) -> Text:
    # Names in a corpus and messages may have any bytes, such as a terminal's control sequences.
    return Text("".join(one if one.isprintable() else repr(one)[1:-1] for one in words))


def _cells(sizes: Sequence[_Size]) -> list[str]:
    cells = [str(len(sizes))]
    for pairs in ([(one.text, one.best_text) for one in sizes], [(one.exec, one.best_exec) for one in sizes]):
        before, after = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
        cells += [f"{before:,}", f"{after:,}", f"{100 * (after / before - 1):+.2f} %" if before else ""]
    return [*cells, f"{sum(one.decisions for one in sizes):,}", f"{sum(one.passes for one in sizes):,}"]
