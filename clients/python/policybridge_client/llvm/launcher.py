"""Handing ``policybridge run`` to the native launcher ``policybridge-run``, if that is installed."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from policybridge_client.addresses import scheme_of, split_addresses
from policybridge_client.llvm.compilers import CompilerCommand, Kind
from policybridge_core.errors import PreconditionError
from policybridge_core.lacking import lacking
from policybridge_core.version import version

VARIABLE: Final = "POLICYBRIDGE_LAUNCHER"
"""The environment variable with the launcher's path. If it is set and empty, no launcher is used."""

_NAME: Final = "policybridge-run"
_TASKS: Final = ("inline", "evict", "priority")
_TIMEOUT: Final = 30.0
_IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ)


def become_launcher(words: Sequence[str], compiler: CompilerCommand, task: str, server: str | None) -> None:
    """Replace this process by the launcher; return if there is none, or if it lacks the compiler, task or an address.

    Args:
        words: the command line after ``policybridge run``.
        compiler: the compiler in it.
        task: the task's name.
        server: the servers' addresses; ``None`` with a store of decisions.

    Raises:
        PreconditionError: the launcher that `VARIABLE` names cannot be started.

    """
    if task not in _TASKS or not _starts(compiler):
        return
    for launcher in launchers():
        if _reaches(launcher, server):
            _become(launcher, words)


def find_launcher(server: str | None) -> str | None:
    """Give the path of a launcher that speaks to all of the servers; ``None`` if there is none.

    Raises:
        PreconditionError: the launcher that `VARIABLE` names cannot be started.

    """
    return next((launcher for launcher in launchers() if _reaches(launcher, server)), None)


def launchers() -> Iterator[str]:
    """Give the launcher that `VARIABLE` names, none if it is empty; without the variable, those that are installed."""
    named = os.environ.get(VARIABLE)
    if named is None:
        yield from _installed()
    elif named:
        yield named


def _installed() -> Iterator[str]:
    """Give the launchers beside this command, then the one on PATH."""
    for program in (sys.argv[0], sys.executable):
        beside = Path(program).with_name(_NAME)
        if os.access(beside, os.X_OK):
            yield str(beside)
    on_path = shutil.which(_NAME)
    if on_path is not None:
        yield on_path


def _starts(compiler: CompilerCommand) -> bool:
    """Tell whether the launcher lets this compiler ask: it takes ``clang -cc1`` for a command that asks nothing."""
    return compiler.kind is not Kind.CC1 and (compiler.kind is Kind.ZIG or not compiler.is_zig)


def _reaches(launcher: str, server: str | None) -> bool:
    """Tell whether the launcher is of this version and speaks to all of the servers."""
    first, _, second = _version_of(launcher).partition("\n")
    if version() not in (first.rpartition(" ")[2], "unknown"):
        return False
    speaks = second.removeprefix("addresses: ").split()
    addresses = [] if server is None else split_addresses(server)
    return all(scheme_of(address)[0] in speaks and ",serdes=" not in address for address in addresses)


def _version_of(launcher: str) -> str:
    command = [launcher, "--version"]
    try:
        told = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_TIMEOUT, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        if os.environ.get(VARIABLE):
            message = f"the launcher that {VARIABLE} names cannot be started: {error}"
            raise PreconditionError(lacking(message)) from error
        return ""
    return told.stdout.strip()


def _become(launcher: str, words: Sequence[str]) -> None:
    # Python ignores these signals, and exec keeps ignored signals ignored; a compiler expects their defaults.
    for number in _IGNORED_BY_PYTHON:
        signal.signal(number, signal.SIG_DFL)
    sys.stdout.flush()
    os.execv(launcher, [launcher, *words])  # noqa: S606
