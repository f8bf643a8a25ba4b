"""One build of a project's copy, with compilers that stand before the user's on PATH."""

import os
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from policybridge_core.errors import PolicyFailedError, PreconditionError
from policybridge_train.checking.linked import Sizes, sizes_of

_SHOWN: Final = 20
"""Last lines of a build that failed, which the message has."""


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

    def built(self, name: str, launching: Sequence[str]) -> dict[str, Sizes]:
        """Build with the words ``launching`` before each compiler; give the sizes of what the build has linked.

        Raises:
            PolicyFailedError: the build failed, or linked nothing.
            PreconditionError: there is no such compiler.

        """
        copy, log = self.work / "project", self.work / f"{name}.log"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.source, copy, symlinks=True)
        before = sizes_of(copy)
        with log.open("wb") as output:
            try:
                done = subprocess.run(
                    self.build,
                    cwd=copy,
                    env=self._environment(launching),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    check=False,
                )
            except OSError as error:
                raise PolicyFailedError(f"the build cannot be started: {error}") from error
        if done.returncode:
            raise PolicyFailedError(f"the {name} build ended with status {done.returncode}:\n{_last_lines(log)}")
        built = {path: sizes for path, sizes in sizes_of(copy).items() if before.get(path) != sizes}
        if not built:
            raise PolicyFailedError(f"the {name} build linked no program; if all is up to date, let it clean first")
        return built

    def _environment(self, launching: Sequence[str]) -> dict[str, str]:
        folder = self.work / "compilers"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        variables = {}
        for variable, name in zip(("CC", "CXX"), self.compilers, strict=True):
            if (found := shutil.which(name)) is not None:
                wrapper = folder / name
                wrapper.write_text(f'#!/bin/sh\nexec {shlex.join([*launching, found])} "$@"\n', encoding="utf-8")
                wrapper.chmod(0o755)
                variables[variable] = str(wrapper)
        if not variables:
            raise PreconditionError(f"there is no {self.compilers[0]} on PATH; --compiler names another")
        # A cache could return an object that was compiled without the policy.
        cached = {"CCACHE_DISABLE": "1", "SCCACHE_RECACHE": "1"}
        return {**os.environ, **variables, **cached, "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"}


def _last_lines(log: Path) -> str:
    return "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_SHOWN:])
