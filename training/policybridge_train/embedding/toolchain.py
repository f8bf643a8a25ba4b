"""The compilers for C and C++ that compile a policy."""

import argparse
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from policybridge_core.errors import PreconditionError
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.options import add_compiler, add_level, add_limits, limits_of
from policybridge_train.processes.process import compile_by

_PAIRS: Final = (("cc", "c++"), ("gcc", "g++"), ("clang-22", "clang++-22"), ("clang", "clang++"))
_C: Final = re.compile(r"(clang|gcc|cc)(-[\d.]+)?")
_CXX: Final = {"clang": "clang++", "gcc": "g++", "cc": "c++"}
_LIMITS: Final = Limits(3600)
_C_OPTIONS: Final = ("-std=c99", "-fPIC", "-fvisibility=hidden")


@dataclass(frozen=True)
class Toolchain:
    """The compilers for C and C++.

    Attributes:
        c: the name or path of the compiler for C.
        cxx: that of the one for C++.
        level: the level of optimisation of the policy's C.
        limits: of each command.

    """

    c: str
    cxx: str
    level: str = "O2"
    limits: Limits = _LIMITS

    @classmethod
    def find(cls, name: str | None = None, level: str = "O2", limits: Limits = _LIMITS) -> "Toolchain":
        """Find compilers: those of a name or path, else CC and CXX, else the first pair that is installed.

        Raises:
            PreconditionError: none are installed, or the C++ compiler of the named one is not known.

        """
        named = ((name, _cxx_of(name)),) if name else ((os.environ.get("CC", ""), os.environ.get("CXX", "")), *_PAIRS)
        for c, cxx in named:
            if shutil.which(c) and shutil.which(cxx):
                return cls(c, cxx, level, limits)
        if name:
            raise PreconditionError(f"{name} and {_cxx_of(name)} are not installed; name a C compiler with its C++ one")
        raise PreconditionError("no compilers for C and C++ are installed; install g++, or name them in CC and CXX")

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "Toolchain":
        """Find the compilers of `add_toolchain`; see `find`."""
        return cls.find(arguments.compiler, arguments.level, limits_of(arguments))

    def compile_c(self, words: Sequence[str], folder: Path) -> None:
        """Compile C99 in a folder, with further ``words``; see `run`."""
        self.run([self.c, *_C_OPTIONS, f"-{self.level}", *words], folder)

    def run(self, command: Sequence[str], folder: Path | None = None) -> None:
        """Run a command of the build.

        Raises:
            PreconditionError: it fails, or reaches a limit; the message has its last output.

        """
        done = compile_by(command, self.limits, cwd=folder, last=True)
        if not done.ok:
            raise PreconditionError(f"{' '.join(command)} failed: {done.failure}")


def add_toolchain(parser: argparse.ArgumentParser) -> None:
    """Declare ``--compiler``, ``--level``, ``--seconds`` and ``--memory``."""
    add_compiler(parser, example="gcc, clang-22, a path", default="CC and CXX, else cc")
    add_level(parser, "O2", own=False)
    add_limits(parser, _LIMITS)


def _cxx_of(c: str) -> str:
    path = Path(c)
    name = _C.fullmatch(path.name)
    if name is None:
        raise PreconditionError(f"{c!r} is not a known C compiler; supported: cc, gcc, clang, also as gcc-12 or a path")
    cxx = _CXX[name[1]] + (name[2] or "")
    return str(path.with_name(cxx)) if path.parent != Path() else cxx
