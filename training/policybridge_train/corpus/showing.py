"""A corpus as tables, as a line, and as JSON."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from json import dumps
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from policybridge_train.corpus.conversion import Converted
from policybridge_train.corpus.description import Corpus
from policybridge_train.corpus.writing import CorpusWriter

_SHOWN = 10
"""Duplicates and failures that are named one by one."""
_WIDTH = 200


def tables(corpus: Corpus) -> Iterator[Table]:
    """Give a table of projects, one of programs' kinds is in it, and one of failures if there are any."""
    yield _projects(corpus)
    if corpus.failures:
        failures = Table("not added", "why", title=f"{len(corpus.failures)} failures")
        for name, why in sorted(corpus.failures.items()):
            failures.add_row(escape(printable(name)), escape(printable(why)[:_WIDTH]))
        yield failures


def tell(writer: CorpusWriter, corpus: Corpus, folder: Path, *, json: bool = False) -> None:
    """Print the corpus' counts, its first failures and its first duplicates; or all as JSON."""
    if json:
        print(as_json(corpus, writer.duplicates))
        return
    print(f"{folder}: {len(corpus.modules)} modules, {len(corpus.programs)} programs, {len(corpus.failures)} failures")
    for name, why in sorted(corpus.failures.items())[:_SHOWN]:
        print(f"  failed: {printable(name)}: {printable(why)[:_WIDTH]}")
    for name, known in sorted(writer.duplicates.items())[:_SHOWN]:
        print(f"  not added again: {printable(name)} is {printable(known)}")
    more = len(writer.duplicates) - _SHOWN
    if more > 0:
        print(f"  not added again: {more} others")


def as_json(corpus: Corpus, duplicates: Mapping[str, str], **more: object) -> str:
    """Give the counts by project, with all failures, duplicates and ``more`` as JSON.

    Bytes of names that are no UTF-8 are escaped.
    """
    projects = {
        project: {
            "modules": dict(Counter(module.language for module in corpus.modules if module.project == project)),
            "programs": sum(program.project == project for program in corpus.programs),
        }
        for project in sorted({module.project for module in corpus.modules})
    }
    told = {
        "corpus": str(corpus.folder),
        "modules": len(corpus.modules),
        "programs": len(corpus.programs),
        "projects": projects,
        "failures": dict(corpus.failures),
        "duplicates": dict(duplicates),
        **more,
    }
    # json and not msgspec, which takes no names with bytes that are no UTF-8.
    return dumps(told, indent=2)


@contextmanager
def shown_progress() -> Iterator[Callable[[Converted], None]]:
    """Show how many units have become modules, where standard error is a terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("to bitcode", total=None)
        yield lambda now: progress.update(task, total=now.total, completed=now.done)


def printable(text: str) -> str:
    """Make text fit for a terminal: odd bytes and control characters as escapes."""
    shown = text.encode(errors="surrogateescape").decode(errors="backslashreplace")
    return "".join(letter if letter.isprintable() else " " for letter in shown)


def _projects(corpus: Corpus) -> Table:
    table = Table("project", "modules", "c", "c++", "other", "bytes", "programs", title=printable(str(corpus.folder)))
    modules = Counter(module.project for module in corpus.modules)
    languages = Counter((module.project, module.language) for module in corpus.modules)
    size: Counter[str] = Counter()
    for module in corpus.modules:
        size[module.project] += module.bitcode.stat().st_size if module.bitcode.exists() else 0
    programs = Counter(program.project for program in corpus.programs)
    for project in sorted(modules):
        c, cxx = languages[project, "c"], languages[project, "c++"]
        counts = (modules[project], c, cxx, modules[project] - c - cxx, size[project], programs[project])
        table.add_row(escape(printable(project)), *map(str, counts))
    c, cxx = (sum(module.language == one for module in corpus.modules) for one in ("c", "c++"))
    total = (len(corpus.modules), c, cxx, len(corpus.modules) - c - cxx, size.total(), len(corpus.programs))
    table.add_section()
    table.add_row(f"{len(modules)} projects", *map(str, total))
    return table
