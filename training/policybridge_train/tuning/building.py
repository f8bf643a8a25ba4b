"""The modules of a build, for tuning."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Final

import msgspec

from policybridge_core.errors import NotFoundError, PolicyBridgeError
from policybridge_train.command_line import INTERRUPTED
from policybridge_train.corpus.bitcode import FrontEnd
from policybridge_train.corpus.building import record
from policybridge_train.corpus.conversion import Project, convert
from policybridge_train.corpus.description import Corpus
from policybridge_train.corpus.notes import BuildCommand
from policybridge_train.corpus.nothing import why_nothing
from policybridge_train.corpus.writing import CorpusWriter
from policybridge_train.tuning.compilers import BuildCompilers

_COMMANDS: Final = "build.json"

_Kept = tuple[list[str], list[tuple[str, str, tuple[str, ...], dict[str, str]]]]
"""The build's folder and words, and of each command what `_written` gives."""

_SHOWN: Final = 20
"""Compilations that failed, of which the terminal is told."""


def built(build: Sequence[str], work: Path, output: IO[bytes] | None = None) -> Sequence[BuildCommand]:
    """Run a build; give its commands, or if all is up to date those of the same build when it last compiled something.

    Args:
        build: the command.
        work: the folder in which the commands are kept.
        output: takes the build's output, if that is not for standard output.

    Raises:
        KeyboardInterrupt: the build was interrupted.
        PolicyBridgeError: it failed.

    """
    status, commands = record(build, Path.cwd(), output=output)
    if status == INTERRUPTED:
        raise KeyboardInterrupt
    if status:
        raise PolicyBridgeError(f"the build ended with status {status}, so nothing was tuned: mend it first")
    kept, name = work / _COMMANDS, [str(Path.cwd()), *build]
    if +BuildCompilers.of(commands).sources:
        kept.write_text(json.dumps([name, [_written(each) for each in commands]]), encoding="ascii")
        return commands
    before = _read(kept, name)
    if before:
        sys.stderr.write("policybridge autotune: the build compiled nothing; the modules of its last run are tuned\n")
    return before or commands


def _written(command: BuildCommand) -> list[object]:
    return [str(command.folder), command.tool, command.arguments, command.variables]


def _read(file: Path, name: Sequence[str]) -> Sequence[BuildCommand]:
    """Give the commands of a build that were kept; none for another build, and of a damaged file."""
    try:
        # Not msgspec's own reader, which refuses names that are no UTF-8.
        build, commands = msgspec.convert(json.loads(file.read_text(encoding="ascii")), _Kept)
    except (OSError, ValueError, RecursionError, msgspec.ValidationError):
        return ()
    if build != name:
        return ()
    return [BuildCommand(Path(folder), tool, words, variables) for folder, tool, words, variables in commands]


def converted(
    commands: Sequence[BuildCommand], front_end: FrontEnd, output: Path, jobs: int
) -> tuple[Corpus, Mapping[Path, str]]:
    """Give a build's modules and programs, and those of earlier builds whose sources or files are there.

    The second is the module of each object that this build made.

    Raises:
        NotFoundError: there are none.

    """
    folder = Path.cwd()
    writer = CorpusWriter(output)
    made = convert(commands, Project(folder.name, folder), front_end, writer, jobs=jobs)
    whole = writer.write()
    # A source that was removed or renamed since is none of the project's any more.
    corpus = whole.select(module.name for module in whole.modules if (folder / module.source).is_file())
    # pip links in a folder of another name each time.
    programs = [one for one in corpus.programs if one in made.programs or (folder / one.name).exists()]
    tell_untuned(corpus.failures)
    if not corpus.modules:
        raise NotFoundError(why_nothing(commands, made.failed))
    return replace(corpus, programs=programs), made.names


def tell_untuned(failures: Mapping[str, str]) -> None:
    """Say what is not tuned, and why."""
    for number, (name, why) in enumerate(failures.items()):
        if number == _SHOWN:
            sys.stderr.write(f"policybridge autotune: … and {len(failures) - number:,} more\n")
            return
        reason = why.partition("\n")[0]
        sys.stderr.write(f"policybridge autotune: {name!r} is not tuned: {reason!r}\n")
