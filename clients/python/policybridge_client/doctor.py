"""``policybridge doctor``: the compilers, plugins, launcher, store and servers of this machine, and what is missing."""

import argparse
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from policybridge_client.addresses import SERVER, split_addresses
from policybridge_client.connection import connect
from policybridge_client.decisions.finding import find_store
from policybridge_client.llvm.compilers import CompilerCommand
from policybridge_client.llvm.launcher import find_launcher
from policybridge_client.llvm.plugins import VARIABLE, find_plugin, plugin_folders
from policybridge_core.errors import PolicyBridgeError
from policybridge_core.json_text import json_text
from policybridge_core.terminal import say
from policybridge_core.version import version

_SILENT: Final = 1
_TIMEOUT: Final = 30.0
_COMPILERS: Final = re.compile(r"(clang|opt|gcc|mlir-opt)(-\d+)?")
_VERSION: Final = re.compile(r"(\d+)\.\d+(\.\d+)?")
_ANSWER: Final = 5.0
_PLUGINS: Final = {
    "clang": "policybridge-inliner-{}.so",
    "opt": "policybridge-inliner-{}.so",
    "gcc": "policybridge_unroll_gcc{}.so",
    "mlir-opt": "policybridge-mlir-{}.so",
}
_LLVM: Final = ("19", "22")
_OPTIONS: Final = {"clang": "LLVM", "opt": "LLVM", "gcc": "GCC", "mlir-opt": "MLIR"}


class FoundCompiler(msgspec.Struct, frozen=True):
    """A compiler on PATH.

    Attributes:
        plugin: the path of the plugin that it loads; empty if there is none.
        note: what follows from that, and the cure.

    """

    name: str
    version: str
    plugin: str
    note: str = ""


class FoundServer(msgspec.Struct, frozen=True):
    """An address of a server; ``error`` is empty if the server answers."""

    address: str
    error: str


class Diagnosis(msgspec.Struct, frozen=True):
    """The parts of PolicyBridge on this machine.

    Attributes:
        launcher: the path of policybridge-run; empty if there is none of this version.
        store: the decisions that a compilation in this folder finds; empty if there are none.
        folders: where plugins are looked for.

    """

    version: str
    python: str
    launcher: str
    store: str
    folders: Sequence[str]
    compilers: Sequence[FoundCompiler]
    servers: Sequence[FoundServer]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.epilog = "Exit status: 0; 1 if a server does not answer."
    parser.add_argument("--plugins", type=Path, metavar="DIR", help="look for plugins there first")
    parser.add_argument("--server", default=os.environ.get(SERVER), metavar="ADDRESS", help=f"(default: {SERVER})")
    parser.add_argument("--json", action="store_true", help="write all as JSON")


def run(arguments: argparse.Namespace) -> int:
    """Tell; return the exit status."""
    found = diagnose(arguments.plugins, arguments.server)
    if arguments.json:
        say(json_text(found))
    else:
        say("\n".join(_lines(found)))
    return _SILENT if any(each.error for each in found.servers) else 0


def diagnose(plugins: Path | None, servers: str | None) -> Diagnosis:
    """Look at everything; ``servers`` are addresses separated by commas."""
    store = find_store(Path.cwd() / "source.c")
    return Diagnosis(
        version(),
        platform.python_version(),
        _launcher(),
        "" if store is None else str(store.path) + (f" (not taken: {store.refused})" if store.refused else ""),
        [str(folder) for folder in plugin_folders(plugins)],
        [_compiler(name, plugins) for name in _on_path()],
        [_server(address) for address in split_addresses(servers)] if servers else [],
    )


def _launcher() -> str:
    try:
        return find_launcher(None) or ""
    except PolicyBridgeError as error:
        return f"none: {error}"


def _on_path() -> Sequence[str]:
    """Give the names of compilers on PATH that plugins are for, each once."""
    names: set[str] = set()
    for folder in os.get_exec_path():
        try:
            names.update(each.name for each in Path(folder).iterdir() if _COMPILERS.fullmatch(each.name))
        except OSError:
            continue
    return sorted(name for name in names if shutil.which(name))


def _compiler(name: str, plugins: Path | None) -> FoundCompiler:
    kind, told = name.rstrip("0123456789").rstrip("-"), _VERSION.search(_said(name))
    if told is None:
        return FoundCompiler(name, "", "", "it does not tell its version")
    file = _PLUGINS[kind].format(told[1])
    found = _plugin(name, kind, file, plugins)
    if found:
        return FoundCompiler(name, told[0], str(found))
    if _OPTIONS[kind] == "LLVM" and told[1] not in _LLVM:
        tried = " and ".join(_LLVM)
        return FoundCompiler(name, told[0], "", f"there are plugins for LLVM {tried} alone; docs/llvm.md needs none")
    package = (
        f"install policybridge-llvm{told[1]} (docs/install.md), " if file.startswith("policybridge-inliner") else ""
    )
    cure = f"{package}build it with -DPOLICYBRIDGE_{_OPTIONS[kind]}={told[1]}, or name its folder in {VARIABLE}"
    return FoundCompiler(name, told[0], "", f"it loads no {file}: {cure}")


def _plugin(name: str, kind: str, file: str, plugins: Path | None) -> Path | None:
    if kind in ("clang", "opt"):
        return find_plugin(CompilerCommand.of([name]), plugins)
    return next((path for folder in plugin_folders(plugins) if (path := folder / file).exists()), None)


def _said(name: str) -> str:
    try:
        done = subprocess.run(
            [name, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def _server(address: str) -> FoundServer:
    try:
        with connect(address, timeout=_ANSWER) as connection:
            connection.check()
    except PolicyBridgeError as error:
        return FoundServer(address, str(error))
    return FoundServer(address, "")


def _lines(found: Diagnosis) -> Iterator[str]:
    yield f"policybridge  {found.version}, Python {found.python}"
    yield f"launcher      {found.launcher or 'none of this version: install policybridge-run (docs/install.md)'}"
    yield f"store         {found.store or 'none from this folder up to the root of its repository'}"
    yield f"plugins       {', '.join(found.folders)}"
    for each in found.compilers:
        yield f"{each.name:13} {each.version or '?'}: {each.plugin or each.note}"
    for server in found.servers:
        yield f"{server.address}: {server.error or 'answers'}"
    if not found.servers:
        yield f"server        none: give --server, or set {SERVER}"
