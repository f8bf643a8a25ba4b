"""The options of every command that compiles: one spelling and one unit for each."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

from policybridge_train.command_line import count
from policybridge_train.compiling.compiler import Compiler, newest_compiler
from policybridge_train.compiling.limits import MIB, Limits
from policybridge_train.compiling.lto import MODES

LEVELS: Final = ("O0", "O1", "O2", "O3", "Os", "Oz", "own")
"""Levels of optimisation; ``own`` is that of the build."""

_MOST_SECONDS: Final = 1e6


def add_compiler(
    parser: argparse.ArgumentParser,
    *,
    several: bool = False,
    example: str = "clang-22, zig, a path",
    default: str = "the newest clang",
) -> None:
    """Declare ``--compiler``; the default is ``None``, which stands for ``default``."""
    repeatable = "; repeatable" if several else ""
    parser.add_argument(
        "--compiler",
        action="append" if several else "store",
        metavar="NAME",
        help=f"{example}{repeatable} (default: {default})",
    )


def add_plugins(parser: argparse.ArgumentParser) -> None:
    """Declare ``--plugins``."""
    parser.add_argument(
        "--plugins",
        type=Path,
        metavar="DIR",
        help="where policybridge-inliner-MAJOR.so is; or POLICYBRIDGE_PLUGINS",
    )


def add_level(parser: argparse.ArgumentParser, default: str, *, own: bool = True) -> None:
    """Declare ``--level``, with which sources are compiled; ``own`` is a choice if there is a build."""
    choices = LEVELS if own else LEVELS[:-1]
    meaning = "'own' is the build's" if own else "of optimisation"
    parser.add_argument("--level", choices=choices, default=default, help=f"{meaning} (default: %(default)s)")


def add_limits(parser: argparse.ArgumentParser, default: Limits | None = None) -> None:
    """Declare ``--seconds`` and ``--memory`` of one compile; their defaults, which may be ``None``."""
    seconds, memory = (default.seconds, default.memory // MIB) if default else (None, None)
    shown = " (default: %(default)s)" if default else ""
    parser.add_argument(
        "--seconds", type=_seconds, default=seconds, metavar="S", help=f"wall seconds for one compile{shown}"
    )
    parser.add_argument("--memory", type=count, default=memory, metavar="MIB", help=f"memory for one compile{shown}")


def add_lto(parser: argparse.ArgumentParser) -> None:
    """Declare ``--lto``."""
    parser.add_argument(
        "--lto",
        choices=MODES,
        help="decide at link time, in LLD: the unit is the program, and its size the linked text (docs/plugin.md#lto)",
    )


def add_selection(parser: argparse.ArgumentParser, *, programs: bool = True) -> None:
    """Declare ``--module``, ``--project`` and, with ``programs``, ``--program``."""
    add = parser.add_argument
    add("--module", action="append", metavar="PATTERN", help="only modules with such names; repeatable")
    add("--project", action="append", metavar="PATTERN", help="only projects with such names; repeatable")
    if programs:
        add("--program", action="append", metavar="PATTERN", help="only the modules of such PROJECT/NAME; repeatable")


@dataclass(frozen=True)
class Selection:
    """The patterns of `add_selection`, as a shell has them; ``None`` lets everything through."""

    modules: Sequence[str] | None = None
    projects: Sequence[str] | None = None
    programs: Sequence[str] | None = None

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> "Selection":
        """Read the patterns of a command line."""
        return cls(arguments.module, arguments.project, getattr(arguments, "program", None))

    def has_module(self, name: str, project: str) -> bool:
        """Tell whether a module's own name and project are let through."""
        return _matches(name, self.modules) and _matches(project, self.projects)

    def has_program(self, name: str, project: str) -> bool:
        """Tell whether a program is let through."""
        return _matches(f"{project}/{name}", self.programs) and _matches(project, self.projects)


def compiler_of(arguments: argparse.Namespace) -> Compiler:
    """Find the compiler of `add_compiler`.

    Raises:
        NotFoundError: there is none of this name, or none at all.

    """
    return Compiler.find(arguments.compiler) if arguments.compiler else newest_compiler()


def limits_of(arguments: argparse.Namespace) -> Limits:
    """Give the limits of `add_limits`.

    Raises:
        InvalidError: no system can keep to one.

    """
    return Limits(arguments.seconds, arguments.memory * MIB)


def _matches(name: str, patterns: Sequence[str] | None) -> bool:
    return patterns is None or any(name == pattern or fnmatchcase(name, pattern) for pattern in patterns)


def _seconds(text: str) -> float:
    number = float(text)
    if not 0 < number < _MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text} is no time for a compiler: give seconds, more than 0")
    return number
