"""Compiling one module with or without a policy. The functions run in worker processes."""

import os
import subprocess
from array import array
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import BinaryIO, Final

from policybridge_client.connection import connect
from policybridge_client.llvm.config import HostConfig
from policybridge_client.llvm.host import run_compiler
from policybridge_client.llvm.process import KEPT_OUTPUT
from policybridge_client.llvm.signals import TakenSignals
from policybridge_client.llvm.statistics import Report
from policybridge_client.llvm.surroundings import Surroundings
from policybridge_demo.compilers import COMPILERS
from policybridge_demo.corpus import Module, library_root
from policybridge_demo.listening import Listener, ListeningConnection
from policybridge_serdes import Values
from policybridge_train.objects.elf import ObjectFile

DEFAULT: Final = "inlining_default"


class CompileError(Exception):
    """A module did not compile; the message says which one and why."""


@dataclass(frozen=True)
class Built:
    """The object file of a compilation.

    Attributes:
        text: size of the code, in bytes.
        digest: SHA-256 of the whole object file.
        seconds: wall time.

    """

    module: Module
    text: int
    digest: str
    seconds: float


@dataclass
class Tally:
    """Counts of the policy's decisions in one compilation, compared with LLVM's own.

    Attributes:
        inlined: number of decisions to inline.
        compared: number of decisions for which LLVM's own decision is known.
        agreed: number of those in which LLVM decides the same.
        latencies: nanoseconds from each observation to its reply.
        fallback: the reason if LLVM decided by itself; else ``None``.

    """

    decisions: int = 0
    inlined: int = 0
    agreed: int = 0
    compared: int = 0
    latencies: "array[int]" = field(default_factory=lambda: array("q"))
    fallback: str | None = None

    def listen(self, observation: Values, advice: Values) -> None:
        """Count one decision."""
        inline = advice.tobytes().strip(b"\0") != b""
        self.inlined += inline
        if DEFAULT in (observation.dtype.names or ()):
            self.compared += 1
            self.agreed += inline == bool(observation[DEFAULT].item())


def compile_plain(compiler: str, module: Module) -> Built:
    """Compile without PolicyBridge.

    Raises:
        CompileError: the compiler failed.

    """
    with _scratch() as (folder, said):
        command = COMPILERS[compiler](module, folder / "module.o")
        begun = perf_counter()
        try:
            done = subprocess.run(command, cwd=library_root(), env=clean_environment(folder), stderr=said, check=False)
        except FileNotFoundError as error:
            raise CompileError(f"{command[0]} is not installed") from error
        seconds = perf_counter() - begun
        _check(module, compiler, done.returncode, said)
        return _built(module, folder, seconds)


def compile_asking(compiler: str, config: HostConfig, module: Module) -> tuple[Built, Tally]:
    """Compile with the decisions of a policy, and count them in a `Tally`; raises as `compile_listening`."""
    tally = Tally()
    built, report = compile_listening(compiler, config, tally.listen, module)
    tally.decisions = report.statistics.decisions
    tally.latencies = report.statistics.latencies
    tally.fallback = report.fallback.reason if report.fallback else None
    return built, tally


def compile_listening(compiler: str, config: HostConfig, listener: Listener, module: Module) -> tuple[Built, Report]:
    """Compile with the decisions of a policy, and call ``listener`` with each of them.

    Raises:
        CompileError: the compiler failed, or the policy failed and the fallback is ``error``.

    """
    with _scratch() as (folder, said):
        connection = ListeningConnection(connect(config.server, timeout=config.timeout), listener)
        surroundings = Surroundings(cwd=library_root(), stderr=said)
        run = partial(run_compiler, COMPILERS[compiler](module, folder / "module.o"), config, surroundings)
        with closing(connection), TakenSignals() as interrupts:
            report = run(connection=connection, interrupts=interrupts)
        _check(module, compiler, report.status, said, str(report.error or ""))
        return _built(module, folder, report.seconds), report


def clean_environment(folder: Path) -> dict[str, str]:
    """Give an environment in which zig's cache is empty: with a warm one it would not run the compiler."""
    return {**os.environ, "ZIG_LOCAL_CACHE_DIR": str(folder / "zig")}


@contextmanager
def _scratch() -> Iterator[tuple[Path, BinaryIO]]:
    with TemporaryDirectory(prefix="policybridge-demo-") as name, (Path(name) / "said").open("w+b") as said:
        yield Path(name), said


def _check(module: Module, compiler: str, status: int, said: BinaryIO, reason: str = "") -> None:
    if status:
        said.seek(0)
        shown = reason or said.read(KEPT_OUTPUT).decode(errors="replace").strip()
        raise CompileError(f"{compiler} ended with status {status} on {module.path}: {shown or 'it said nothing'}")


def _built(module: Module, folder: Path, seconds: float) -> Built:
    file = ObjectFile.read(folder / "module.o")
    return Built(module, file.text, sha256(file.data).hexdigest(), seconds)
