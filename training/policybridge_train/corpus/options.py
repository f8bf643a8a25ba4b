"""What the subcommands of ``policybridge corpus`` have in common: which clang, which level, how many at a time."""

import argparse
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

from policybridge_core.errors import NotFoundError
from policybridge_train.command_line import count
from policybridge_train.compiling.compiler import Compiler
from policybridge_train.compiling.job import Limits
from policybridge_train.corpus.bitcode import FrontEnd

_CLANG: Final = re.compile(r"clang(-\d+)?")
LEVELS: Final = ("O0", "O1", "O2", "O3", "Os", "Oz", "own")


def add_output(parser: argparse.ArgumentParser) -> None:
    """Declare where the corpus is written."""
    parser.add_argument("--output", required=True, type=Path, metavar="DIR", help="the corpus; one that is there grows")


def add_front_end(parser: argparse.ArgumentParser) -> None:
    """Declare how sources become bitcode."""
    parser.add_argument("--compiler", metavar="CLANG", help="what makes the bitcode (default: the newest clang)")
    parser.add_argument("--level", choices=LEVELS, default="Oz", help="'own' keeps the build's (default: %(default)s)")
    parser.add_argument("--debug-info", action="store_true", help="keep tables of lines")
    parser.add_argument("--jobs", type=count, default=os.cpu_count() or 1, metavar="N", help="at a time")
    parser.add_argument("--seconds", type=float, default=Limits().seconds, help="for one module (%(default)s)")


def front_end_of(arguments: argparse.Namespace) -> FrontEnd:
    """Give the front end that the arguments choose.

    Raises:
        NotFoundError: there is no such clang.

    """
    compiler = Compiler.find(arguments.compiler) if arguments.compiler else newest_compiler()
    # Says now what is wrong with a compiler that is none.
    _ = compiler.version
    level = None if arguments.level == "own" else arguments.level
    return FrontEnd(compiler, level, arguments.debug_info, replace(Limits(), seconds=arguments.seconds))


def newest_compiler() -> Compiler:
    """Find the clang of the highest version on PATH; the wheel's, if there is none.

    Raises:
        NotFoundError: there is none at all.

    """
    found = [(compiler.major, compiler) for compiler in _clangs()]
    return max(found, key=lambda pair: pair[0])[1] if found else _wheel()


def _wheel() -> Compiler:
    compiler = Compiler.find("zig")
    try:
        _ = compiler.version
    except NotFoundError:
        raise NotFoundError(
            "there is no clang: install one (Debian: apt install clang), or pip install 'policybridge[llvm]'"
        ) from None
    return compiler


def _clangs() -> Iterator[Compiler]:
    names = {name for folder in os.get_exec_path() for name in _names(folder) if _CLANG.fullmatch(name)}
    for name in sorted(names):
        try:
            compiler = Compiler.find(name)
            _ = compiler.major
        except NotFoundError:
            continue
        yield compiler


def _names(folder: str) -> list[str]:
    try:
        return [file.name for file in Path(folder or ".").iterdir()]
    except OSError:
        return []
