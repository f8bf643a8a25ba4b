"""One build of a project's copy, with compilers that stand before the user's on PATH."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

import msgspec

from policybridge_client.decisions.finding import OFF
from policybridge_core.errors import PolicyFailedError, PreconditionError
from policybridge_train.checking.deciding import Deciding, plain_script
from policybridge_train.checking.linked import Sizes, linked_files, sizes_of

_COMPILERS: Final = "compilers-"
_SHOWN: Final = 20
"""Lines of a build that failed, which the message has."""
_CURE: Final = "let it start the compilers by $CC, $CXX or PATH, and name a store that has its modules"


@dataclass(frozen=True)
class Project:
    """A project that is built in copies.

    Both builds take place in one folder, one after another, so that paths that compilers write into programs are the
    same.

    Attributes:
        source: its folder.
        build: the command that builds it, in a copy of the folder.
        work: holds the copy, the compilers and the logs.
        compilers: the names of the C and the C++ compiler.

    """

    source: Path
    build: Sequence[str]
    work: Path
    compilers: tuple[str, str]

    def built(self, name: str, deciding: Deciding | None = None) -> dict[str, Sizes]:
        """Build with decisions, if a way to decide is given; give the sizes of the files that the build linked.

        Raises:
            PolicyFailedError: the build failed, linked nothing, or no decision was applied in all of it.
            PreconditionError: there is no such compiler.

        """
        copy, log = self.work / "project", self.work / f"{name}.log"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.source, copy, symlinks=True)
        before = _linkings(copy)
        with log.open("wb") as output:
            try:
                done = subprocess.run(
                    self.build,
                    cwd=copy,
                    env=self._environment(deciding),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    check=False,
                )
            except OSError as error:
                raise PolicyFailedError(f"the build cannot be started: {error}") from error
        if done.returncode:
            raise PolicyFailedError(f"the {name} build ended with status {done.returncode}:\n{_last_lines(log)}")
        linked = {path for path, state in _linkings(copy).items() if before.get(path) != state}
        built = {path: sizes for path, sizes in sizes_of(copy).items() if path in linked}
        if not built:
            raise PolicyFailedError(f"the {name} build linked no program; if all is up to date, let it clean first")
        if deciding is not None and not any(map(_applied, self._statistics.iterdir())):
            # Two plain builds would be equal, whatever the policy does.
            said = "\n".join(["", *_our_lines(log)]) or f"; {_CURE}"
            raise PolicyFailedError(f"the {name} build applied no decision{said}")
        return built

    @property
    def _statistics(self) -> Path:
        return self.work / "statistics"

    def _environment(self, deciding: Deciding | None) -> dict[str, str]:
        for old in (self._statistics, *self.work.glob(f"{_COMPILERS}*")):
            shutil.rmtree(old, ignore_errors=True)
        self._statistics.mkdir()
        # Of a new name, of the same length: Go's cache and others return an object that a compiler of the path made.
        folder = Path(mkdtemp(prefix=_COMPILERS, dir=self.work))
        variables = {}
        for variable, name in zip(("CC", "CXX"), self.compilers, strict=True):
            if (found := shutil.which(name)) is not None:
                wrapper = folder / name
                script = plain_script(found) if deciding is None else deciding.script(found, self._statistics)
                wrapper.write_text(f"#!/bin/sh\n{script}", encoding="utf-8")
                wrapper.chmod(0o755)
                variables[variable] = str(wrapper)
        if not variables:
            raise PreconditionError(f"there is no {self.compilers[0]} on PATH; --compiler names another")
        # A cache could return an object that was compiled without the policy.
        cached = {"CCACHE_DISABLE": "1", "SCCACHE_RECACHE": "1"}
        # Both builds have the decisions that are given, and not also those of the project's own store.
        cached[OFF] = "1"
        return {**os.environ, **variables, **cached, "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"}


def _linkings(folder: Path) -> dict[str, tuple[int, int]]:
    """Tell the programs and libraries in a folder from those that take their places, even if these are equal."""
    states = ((path, path.stat()) for path in linked_files(folder))
    return {str(path.relative_to(folder)): (state.st_ino, state.st_mtime_ns) for path, state in states}


class _Store(msgspec.Struct):
    applied: int = 0


class _Passes(msgspec.Struct):
    decisions: int = 0


class _Statistics(msgspec.Struct):
    """What one compilation's statistics have of its decisions."""

    decisions: int = 0
    passes: _Passes | None = None
    store: _Store | None = None


def _applied(statistics: Path) -> bool:
    try:
        read = msgspec.json.decode(statistics.read_bytes(), type=_Statistics)
    except msgspec.DecodeError:  # of a compiler that somebody ended
        return False
    counts = read.decisions, read.passes and read.passes.decisions, read.store and read.store.applied
    return any(counts)


def _lines(log: Path) -> Sequence[str]:
    return log.read_text(encoding="utf-8", errors="replace").splitlines()


def _last_lines(log: Path) -> str:
    return "\n".join(_lines(log)[-_SHOWN:])


def _our_lines(log: Path) -> Sequence[str]:
    """Give the first different lines of the launcher or the plugin."""
    return list(dict.fromkeys(line for line in _lines(log) if line.startswith("policybridge")))[:_SHOWN]
