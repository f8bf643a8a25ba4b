"""``policybridge check``: build a project with a policy and without, and fail if a program is larger with it."""

import argparse
import os
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import msgspec
from rich.console import Console

from policybridge_client.addresses import SERVER
from policybridge_client.llvm.compilers import CompilerCommand
from policybridge_client.llvm.launcher import find_launcher
from policybridge_client.llvm.plugins import find_plugin
from policybridge_core.errors import InvalidError, NotFoundError
from policybridge_core.json_text import json_text
from policybridge_train.checking.building import Project
from policybridge_train.checking.deciding import ByLauncher, ByPlugin, Deciding
from policybridge_train.checking.linked import PARTS, Part, Sizes, percent
from policybridge_train.command_line import status_of
from policybridge_train.compiling.compiler import newest_clang
from policybridge_train.compiling.options import add_compiler, add_plugins
from policybridge_train.scoring.contenders import absolute_server
from policybridge_train.scoring.summary import Grid
from policybridge_train.scoring.table import print_grid

_LARGER: Final = 1
_SOCKET: Final = "socket:"

_DESCRIPTION: Final = """
Builds a project twice in a copy of its folder: with the compiler as it is, and with the decisions of a policy or a
store. Then compares the stripped programs and libraries that the builds linked.
"""


class Program(msgspec.Struct, frozen=True):
    """One program or library in both builds."""

    name: str
    before: Sizes
    after: Sizes


class Checked(msgspec.Struct, frozen=True):
    """The result: all programs, and a sentence for each part that grew beyond the tolerance."""

    programs: Sequence[Program]
    larger: Sequence[str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command's arguments."""
    parser.epilog = "Exit status: 0; 1 if a program is larger; 2 for what cannot be done; 130 after an interrupt."
    parser.description = _DESCRIPTION
    parser.usage = "policybridge check (--policy NAME [--server ADDRESS] | --decisions FILE) [options] -- BUILD…"
    add = parser.add_argument
    who = parser.add_mutually_exclusive_group(required=True)
    who.add_argument("--policy", metavar="NAME[@VERSION|@ALIAS]", help="the policy that decides")
    who.add_argument("--decisions", type=Path, metavar="FILE", help="a store of tuned decisions")
    add("--server", metavar="ADDRESS", help="the server with the policy (default: POLICYBRIDGE_SERVER)")
    add_compiler(parser, example="the C compiler, such as clang-22")
    add_plugins(parser)
    add("--interactive", action="store_true", help="use LLVM's interactive mode, not the plugin")
    add("--source", type=Path, default=Path(), metavar="DIR", help="the project's folder (default: the current one)")
    add("--judge", action="append", choices=PARTS, help="what must not grow; repeatable (default: text)")
    add("--tolerance", type=percent, default=0.0, metavar="PERCENT", help="growth that is no failure (default: 0)")
    add("--work", type=Path, metavar="DIR", help="keep the last build and both logs there (default: removed)")
    add("--json", action="store_true", help="write all as JSON, not as a table")
    add("build", nargs=argparse.REMAINDER, metavar="-- BUILD…", help="the build, by $CC, $CXX or PATH's compilers")


def run(arguments: argparse.Namespace) -> int:
    """Build twice and compare; return the exit status."""
    return status_of("check", lambda: _run(arguments), "the builds are removed unless --work names their folder")


def _run(arguments: argparse.Namespace) -> int:
    compiler = _compiler(arguments)
    deciding = _deciding(arguments, compiler)
    build = arguments.build[1:] if arguments.build[:1] == ["--"] else arguments.build
    if not build:
        raise InvalidError("give the build behind --, such as: policybridge check --policy inliner -- make")
    with TemporaryDirectory(prefix="policybridge-check-") as name:
        work = Path(name) if arguments.work is None else arguments.work.absolute()
        work.mkdir(parents=True, exist_ok=True)
        source = arguments.source.absolute()
        if work.is_relative_to(source):
            raise InvalidError(f"--work {work} is in the project's folder, which is copied there; name one outside")
        project = Project(source, build, work, (compiler, compiler.replace("clang", "clang++", 1)))
        before = project.built("plain")
        after = project.built("policy", deciding)
    return _told(before, after, arguments)


def _compiler(arguments: argparse.Namespace) -> str:
    if arguments.compiler:
        return str(arguments.compiler)
    if (found := newest_clang()) is None:
        raise NotFoundError(
            "there is no clang on PATH: install one (Debian: apt install clang), or name it by --compiler"
        )
    return found.name


def _deciding(arguments: argparse.Namespace, compiler: str) -> Deciding:
    server = arguments.server or os.environ.get(SERVER)
    plugins = [] if arguments.plugins is None else ["--plugins", str(arguments.plugins.absolute())]
    if arguments.decisions is not None:
        if arguments.server:
            raise InvalidError("with --decisions no server is asked: give either --decisions, or --policy and --server")
        return _launcher(None, ["--decisions", str(arguments.decisions.absolute()), *plugins])
    if not server:
        raise InvalidError(f"--policy needs --server ADDRESS, or {SERVER} in the environment")
    address = absolute_server(server)
    launcher = _launcher(server, ["--policy", arguments.policy, "--server", address])
    plugin = None if arguments.interactive or not address.startswith(_SOCKET) else _plugin(compiler, arguments.plugins)
    if plugin is None:
        return launcher
    return ByPlugin(plugin, {"SERVER": address, "POLICY": arguments.policy, "FALLBACK": "error"}, launcher)


def _launcher(server: str | None, deciding: Sequence[str]) -> ByLauncher:
    launcher = find_launcher(server)
    python = [sys.executable, "-m", "policybridge_client.cli", "run"]
    return ByLauncher([*(python if launcher is None else [launcher]), *deciding, "--fallback", "error"])


def _plugin(compiler: str, plugins: Path | None) -> Path | None:
    found = shutil.which(compiler)
    return None if found is None else find_plugin(CompilerCommand.of([found]), plugins)


def _told(before: Mapping[str, Sizes], after: Mapping[str, Sizes], arguments: argparse.Namespace) -> int:
    if apart := sorted(before.keys() ^ after.keys()):
        raise InvalidError(f"only one of the builds linked {', '.join(apart)}")
    judged: Sequence[Part] = arguments.judge or ["text"]
    larger = [
        f"{name} is larger by {part}: {change:+.2f} %"
        for name in before
        for part in dict.fromkeys(judged)
        if (change := _change(before[name], after[name], part)) > arguments.tolerance
    ]
    if arguments.json:
        checked = Checked([Program(name, before[name], after[name]) for name in before], larger)
        print(json_text(checked))
    else:
        rows = [row for name in before for row in _rows(name, before[name], after[name])]
        print_grid(Grid("programs and libraries, stripped", _COLUMNS, rows), Console())
    for line in larger:
        sys.stderr.write(f"policybridge check: {line}\n")
    return _LARGER if larger else 0


_COLUMNS: Final = ("program", "part", "before", "after", "difference", "change")


def _rows(name: str, before: Sizes, after: Sizes) -> Iterator[Sequence[str]]:
    for part in PARTS:
        old, new = (getattr(each, part) for each in (before, after))
        yield name, part, f"{old:,}", f"{new:,}", f"{new - old:+,}", f"{_change(before, after, part):+.2f} %"


def _change(before: Sizes, after: Sizes, part: Part) -> float:
    """Give the growth in percent; of nothing it is infinite."""
    old, new = getattr(before, part), getattr(after, part)
    if old == new:
        return 0.0
    return 100 * (new / old - 1) if old else float("inf")
