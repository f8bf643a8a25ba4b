"""Turns a build's commands into modules and programs.

Sources are compiled to bitcode after the build, not during it: the build keeps its speed, its output and its memory,
and the sources of configuration checks (conftest.c, CMake's and Meson's) are gone by then or known by their paths.
Sources and headers that a build generates and keeps are there.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from policybridge_core.errors import PolicyBridgeError
from policybridge_train.compiling.module import PROFILES, Module, Program
from policybridge_train.corpus.bitcode import FrontEnd, Unit, kept_arguments
from policybridge_train.corpus.invocation import Invocation, Source, parse_compiler
from policybridge_train.corpus.linking import read_links
from policybridge_train.corpus.notes import BuildCommand
from policybridge_train.corpus.programs import Programs
from policybridge_train.corpus.standing import standing
from policybridge_train.corpus.writing import CorpusWriter, module_name
from policybridge_train.processes.threads import Ended, in_order

_TRIAL: Final = re.compile(
    r"^/dev/null$|(^|/)(conftest[^/]*|CMakeFiles/(CMakeTmp|CMakeScratch|[\d.]+/CompilerId\w+|ShowIncludes)/.*|meson-private/.*"
    r"|[^/]*cmTC_[^/]*(/.*)?|\.conftest[^/]*|testCCompiler\.c|CMake(C|CXX)Compiler(ABI|Id)\.\w+)$"
)


@dataclass(frozen=True)
class Project:
    """A project to build.

    Attributes:
        name: in the corpus.
        root: the folder in which it is.
        moves: whether each build has another folder. Then no module depends on the folder, even if a source has an
            absolute path.

    """

    name: str
    root: Path
    moves: bool = False


@dataclass
class Converted:
    """How many units became modules, so far; ``names``: the module of each object; ``programs``: those linked."""

    total: int
    done: int = 0
    failed: int = 0
    names: dict[Path, str] = field(default_factory=dict)
    programs: list[Program] = field(default_factory=list)


Progress = Callable[[Converted], None]


def units_of(commands: Iterable[BuildCommand]) -> list[Unit]:
    """Give the units that a build compiled: the last for each object, without trials and sources that are gone."""
    return [unit for unit in _units(commands) if unit.path.is_file()]


def removed_sources(commands: Iterable[BuildCommand]) -> list[Path]:
    """Give the sources that a build compiled and removed, without those of trials."""
    return [unit.path for unit in _units(commands) if not unit.path.exists()]


def own_sources(invocation: Invocation) -> tuple[Source, ...]:
    """Give the sources of a command without those of trials of the build system's."""
    return tuple(source for source in invocation.sources if not _is_trial(Unit(invocation, source)))


def _units(commands: Iterable[BuildCommand]) -> list[Unit]:
    units: dict[Path, Unit] = {}
    for command in commands:
        invocation = parse_compiler(command)
        if invocation is not None and invocation.stage != "other":
            units.update({unit.object: unit for one in own_sources(invocation) if (unit := Unit(invocation, one))})
    return [units[path] for path in sorted(units)]


def convert(  # noqa: PLR0913 - each is a choice of the caller's
    commands: Sequence[BuildCommand],
    project: Project,
    front_end: FrontEnd,
    writer: CorpusWriter,
    *,
    jobs: int = 1,
    progress: Progress = lambda _: None,
) -> Converted:
    """Add the modules and programs of a build to a corpus, and a row for each failure."""
    units = _named(units_of(commands), project)
    converted = Converted(len(units))
    progress(converted)
    names = converted.names

    def make(named: tuple[str, Unit]) -> tuple[Module, Path]:
        return _make(*named, project, front_end, writer)

    try:
        with (
            standing(unit.invocation.command.folder for _, unit in units),
            closing(in_order(make, units, jobs)) as each,
        ):
            for (name, unit), made in zip(units, each, strict=True):
                added = _take(name, made, writer)
                converted.done += 1
                converted.failed += added is None
                if added is not None:
                    names[unit.object] = added
                progress(converted)
    finally:
        converted.programs.extend(_programs(commands, names, project))
        writer.link(converted.programs)
    return converted


def _is_trial(unit: Unit) -> bool:
    return any(_TRIAL.search(str(path)) for path in (unit.path, unit.object))


def _named(units: Iterable[Unit], project: Project) -> list[tuple[str, Unit]]:
    """Name each unit by its object below the project's folder, by its source where there is no such object."""
    named: dict[str, Unit] = {}
    for unit in units:
        path = unit.object if _is_kept(unit, project.root) else unit.path
        name = free = module_name(project.name, os.path.relpath(path, project.root))
        number = 1
        while free in named:
            number += 1
            free = f"{name}~{number}"
        named[free] = unit
    return list(named.items())


def _is_kept(unit: Unit, root: Path) -> bool:
    """Tell whether a unit's object is below a folder, in one that the build has not removed and will name otherwise."""
    return unit.invocation.stage == "compile" and unit.object.is_relative_to(root) and unit.object.parent.is_dir()


def _make(name: str, unit: Unit, project: Project, front_end: FrontEnd, writer: CorpusWriter) -> tuple[Module, Path]:
    """Compile one unit.

    Raises:
        PolicyBridgeError: clang does not compile it.
        OSError: it cannot be started, or written.

    """
    if project.moves:
        unit = _independent(unit, project.root)
    arguments = front_end.arguments(unit)
    output = writer.temporary(name)
    try:
        compiled = front_end.compile(arguments, unit, output)
        if not compiled.ok:
            raise PolicyBridgeError(f"{compiled.status.value}: {compiled.message}")
    except BaseException:
        with suppress(OSError):
            output.unlink()
        raise
    module = Module(
        name,
        output.parent,
        kept_arguments(_with_own_profile(arguments, unit, writer), project.root),
        project.name,
        _below(unit.path, project.root),
        unit.source.text,
    )
    return module, output


def _with_own_profile(arguments: Sequence[str], unit: Unit, writer: CorpusWriter) -> list[str]:
    """Name the corpus' copy of a profile in its place: a later one of the build's is another."""
    words = list(arguments)
    for index, word in enumerate(words):
        option, _, file = word.partition("=")
        if option in PROFILES:
            words[index] = f"{option}={writer.keep_profile(unit.invocation.command.path(file))}"
    return words


def _independent(unit: Unit, root: Path) -> Unit:
    """Name the source by a relative path, and the project's folder ``.`` in ``__FILE__`` and the like."""
    invocation, source = unit.invocation, unit.source
    flags = (*invocation.flags, f"-ffile-prefix-map={root}=.")
    word = os.path.relpath(unit.path, invocation.command.folder)
    return Unit(replace(invocation, flags=flags), replace(source, word=word))


def _take(name: str, made: Ended[tuple[Module, Path]], writer: CorpusWriter) -> str | None:
    try:
        return writer.add(*made())
    except (PolicyBridgeError, OSError) as error:
        writer.fail(name, str(error))
        return None


def _programs(commands: Iterable[BuildCommand], names: dict[Path, str], project: Project) -> Iterator[Program]:
    programs = Programs(names)
    programs.follow(read_links(commands))
    for path, made, objects in programs:
        if made != "object" and not _TRIAL.search(str(path)):
            modules = tuple(dict.fromkeys(names[one] for one in objects))
            yield Program(_below(path, project.root), project.name, made, modules, programs.exports_of(path))


def _below(path: Path, root: Path) -> str:
    return str(path.relative_to(root) if path.is_relative_to(root) else path)
