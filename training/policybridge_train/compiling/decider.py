"""Deciders: the compiler itself, a policy's server, or a store."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Protocol, Self

from policybridge_core.plugins import Table
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.process import Command
from policybridge_train.compiling.result import CompileResult, DecisionLog
from policybridge_train.compiling.tool import CompileTool
from policybridge_train.farms.contract import Machine
from policybridge_train.objects.elf import ObjectFile


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
        """Give the object that the decisions made, mostly ``made``, and their log; ``None`` if there is no log."""
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
