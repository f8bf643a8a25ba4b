"""Running a part's commands, and the figures that it gives."""

import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from policybridge_bench.processes import module, server
from policybridge_core.errors import PolicyFailedError
from policybridge_docs.results.figures import Figure
from policybridge_train.compiling.compiler import Compiler

CLI: Final = "policybridge_client.cli"


@dataclass(frozen=True)
class Made:
    """The figures of a part.

    Attributes:
        command: measured them, as users write it.
        compiler: its version, where the figures depend on one.
        decided: the name of the bundled policy that made the decisions; empty: none did.

    """

    command: str
    figures: dict[str, Figure]
    compiler: str = ""
    decided: str = ""


@contextmanager
def bundled(folder: Path, *options: object) -> Iterator[str]:
    """Serve the bundled policies on a socket."""
    address = folder / "policybridge.sock"
    with server(module(CLI, "serve", "--demo", "--socket", address, *options), log=folder / "server.log"):
        yield f"socket:{address}"


def run_module(name: str, *words: object, statuses: Sequence[int] = (0,)) -> None:
    """Run a module of Python.

    Raises:
        PolicyFailedError: it ends with none of these statuses.

    """
    command = module(name, *words)
    sys.stderr.write(f"{shlex.join(command)}\n")
    if (status := subprocess.run(command, check=False).returncode) not in statuses:
        raise PolicyFailedError(f"{shlex.join(command)} ended with {status}")


def as_typed(words: Sequence[str], *more: str) -> str:
    """Give a command of ``policybridge`` as users write it."""
    return " ".join(["policybridge", shlex.join(words), *more])


def clang() -> str:
    """Give the version of the clang that measures."""
    return Compiler.find("clang-22").version
