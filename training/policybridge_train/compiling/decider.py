"""Deciders (the compiler itself, a policy's server, or a store), and one compile by them."""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, Final, Protocol, Self

import msgspec
from msgspec.structs import asdict, replace

from policybridge_core.errors import PolicyBridgeError
from policybridge_core.plugins import Table
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.objectives import Objectives
from policybridge_train.compiling.result import CompileResult, DecisionLog
from policybridge_train.compiling.tool import CompileTool
from policybridge_train.farms.contract import Machine
from policybridge_train.objects.elf import ObjectFile
from policybridge_train.processes.process import Running, Status, compile_by

Costs = Mapping[str, float]


class Compilation(Protocol):
    """One run of a compiler that writes an object."""

    @property
    def way(self) -> str:
        """How decisions reach the compiler: ``plain``, ``plugin`` or ``interactive``."""
        ...

    @property
    def again(self) -> Sequence[str]:
        """The words of a shell command that repeats the run; empty if no command can."""
        ...

    def run(self) -> CompileResult:
        """Compile. The result has no costs and no totals yet.

        Raises:
            OSError: the compiler cannot be started.
            PolicyBridgeError: the decisions cannot reach the compiler, or all compilers were ended.

        """
        ...

    def log(self, made: ObjectFile) -> tuple[ObjectFile, DecisionLog] | None:
        """Give the object that the decisions made, mostly ``made``, and their log; ``None`` if it keeps no log.

        Raises:
            PreconditionError: the compiler wrote no log.

        """
        ...


class Decider(Protocol):
    """Decides for a compiler. It can be pickled."""

    asks: ClassVar[bool] = False
    """Whether it needs a server."""

    def at(self, machine: Machine, *, again: bool = False) -> Self:  # noqa: ARG002 - for those that need them
        """Give the decider for a machine. Pass ``again`` after a compile failed there: a dead server is then restarted.

        By default it is the same on every machine.

        Raises:
            UnavailableError: there is no server.

        """
        return self

    def compilation(self, tool: CompileTool, module: Module, output: Path, extra: Sequence[str] = ()) -> Compilation:
        """Give the compilation of a module; its other files go into the folder of ``output``.

        Args:
            tool: the compiler.
            module: the module to compile.
            output: the path of the object to write.
            extra: further arguments of cc1.

        Raises:
            PolicyBridgeError: this compiler cannot take the decisions; the message names the missing part.

        """
        ...


DECIDERS: Final = Table(
    kind="decider",
    group="policybridge.deciders",
    own={
        "plain": "policybridge_train.compiling.decider:Plain",
        "policy": "policybridge_train.compiling.policy:ByPolicy",
        "store": "policybridge_train.compiling.store:ByStore",
        "decisions": "policybridge_train.compiling.decisions:ByDecisions",
    },
)
"""Each entry is a class with constructor arguments of its own."""


@dataclass(frozen=True)
class Command:
    """A compilation (`Compilation`) without a host process.

    The compiler takes no advice, or its plugin fetches the advice.

    Attributes:
        words: the command.
        limits: of the compiler.
        running: where the compiler is counted while it runs.
        way: ``plain`` or ``plugin``.
        sessions: the file to which the plugin writes the ids of its sessions; ``None``: it writes none.

    """

    words: Sequence[str]
    limits: Limits
    running: Running
    way: str = "plain"
    sessions: Path | None = None

    @property
    def again(self) -> Sequence[str]:
        """The command."""
        return self.words

    def run(self) -> CompileResult:
        """Compile."""
        # Disable ccache: exploration decides by chance, so the object must not be cached for this command line.
        environment = {**os.environ, "CCACHE_DISABLE": "1"}
        done = compile_by(self.words, self.limits, environment, running=self.running)
        sessions = sessions_of(self.sessions) if self.sessions and done.status is Status.OK else ()
        return CompileResult(sessions=sessions, **asdict(done))

    def log(self, _: ObjectFile) -> tuple[ObjectFile, DecisionLog] | None:
        """Give ``None``: this compilation keeps no log."""
        return None


class _Statistics(msgspec.Struct):
    """The part of the plugin's statistics that is read here."""

    sessions: list[str] = []


def sessions_of(statistics: Path) -> Sequence[str]:
    """Give the ids of a compilation's sessions, from the plugin's statistics."""
    try:
        return msgspec.json.decode(statistics.read_bytes(), type=_Statistics).sessions
    except FileNotFoundError:
        # If the compiler asks nothing, the plugin opens no session and writes no file.
        return []


@dataclass(frozen=True)
class Plain(Decider):
    """LLVM's own decisions.

    Attributes:
        arguments: further arguments of ``clang -cc1``.

    """

    arguments: tuple[str, ...] = ()

    def compilation(self, tool: CompileTool, module: Module, output: Path, extra: Sequence[str] = ()) -> Compilation:
        """Give the plain compilation."""
        words = tool.compiler.command(module, output, [*extra, *self.arguments])
        return Command(words, tool.limits, tool.running)


@dataclass(frozen=True)
class Wanted:
    """The measurements and files to take of a compile.

    Attributes:
        objectives: the names of the totals (`policybridge_train.compiling.objectives.OBJECTIVES`).
        arguments: further arguments of ``clang -cc1``.
        units: gives the costs by unit from the first objective's costs by function; ``None``: no costs.
        keep: whether the object comes with the result.

    """

    objectives: tuple[str, ...] = ("text", "exec")
    arguments: tuple[str, ...] = ()
    units: Callable[[Costs], Costs] | None = None
    keep: bool = False


def compile_module(tool: CompileTool, module: Module, decider: Decider, wanted: Wanted) -> CompileResult:
    """Compile a module and measure the object; a failure is a result.

    Raises:
        PolicyBridgeError: all compilers were ended.

    """
    with TemporaryDirectory(prefix="policybridge-compile-") as name:
        try:
            return _compiled(tool, module, decider, wanted, Path(name))
        except (PolicyBridgeError, OSError) as error:
            if tool.running.over:
                raise
            return CompileResult.failed(str(error))


def _compiled(tool: CompileTool, module: Module, decider: Decider, wanted: Wanted, folder: Path) -> CompileResult:
    output = folder / "object"
    objectives = Objectives(wanted.objectives, folder)
    compilation = decider.compilation(tool, module, output, [*wanted.arguments, *objectives.arguments])
    done = compilation.run()
    if done.status is not Status.OK:
        return done
    made = ObjectFile.read(output)
    asked, log = compilation.log(made) or (made, None)
    return replace(
        done,
        costs=wanted.units(objectives.costs(asked)) if wanted.units else {},
        totals=objectives.totals(made),
        sections=made.loaded,
        digest=hashlib.sha256(made.data).hexdigest(),
        log=log,
        content=made.data if wanted.keep else b"",
    )
