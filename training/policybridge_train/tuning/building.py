"""The modules of a build, for tuning."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from policybridge_core.errors import NotFoundError, PolicyBridgeError
from policybridge_train.command_line import INTERRUPTED
from policybridge_train.corpus.bitcode import FrontEnd
from policybridge_train.corpus.building import record
from policybridge_train.corpus.conversion import Project, convert
from policybridge_train.corpus.description import Corpus
from policybridge_train.corpus.writing import CorpusWriter

_SHOWN: Final = 20
"""Compilations that failed, of which the terminal is told."""


def recorded(build: Sequence[str], front_end: FrontEnd, output: Path, jobs: int) -> Corpus:
    """Run a build; give its modules, and those of earlier builds whose sources and flags are unchanged.

    Raises:
        KeyboardInterrupt: the build was interrupted.
        NotFoundError: it compiled nothing.
        PolicyBridgeError: it failed.

    """
    folder = Path.cwd()
    status, commands = record(build, folder)
    if status == INTERRUPTED:
        raise KeyboardInterrupt
    if status:
        raise PolicyBridgeError(f"the build ended with status {status}; nothing was tuned")
    writer = CorpusWriter(output)
    convert(commands, Project(folder.name, folder), front_end, writer, jobs=jobs)
    whole = writer.write()
    # A source that was removed or renamed since is none of the project's any more.
    corpus = whole.select(module.name for module in whole.modules if (folder / module.source).is_file())
    tell_untuned(corpus.failures)
    if not corpus.modules:
        raise NotFoundError("the build compiled nothing; if all is up to date, clean it and build again")
    return corpus


def tell_untuned(failures: Mapping[str, str]) -> None:
    """Say what is not tuned, and why."""
    for number, (name, why) in enumerate(failures.items()):
        if number == _SHOWN:
            sys.stderr.write(f"policybridge autotune: … and {len(failures) - number:,} more\n")
            return
        reason = why.partition("\n")[0]
        sys.stderr.write(f"policybridge autotune: {name!r} is not tuned: {reason!r}\n")
