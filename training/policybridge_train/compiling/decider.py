"""Deciders: the compiler itself, a policy's server, or a store."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Final, Protocol, runtime_checkable

from policybridge_core.plugins import Table
from policybridge_train.compiling.compiler import CompileTool
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.result import CompileResult, DecisionLog
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


@runtime_checkable
class KeepsLog(Protocol):
    """A compilation that logs the decisions."""

    def log(self, made: ObjectFile) -> tuple[ObjectFile, DecisionLog]:
        """Give the object that the decisions made, mostly ``made``, and their log.

        Raises:
            PreconditionError: the compiler wrote no log.

        """
        ...


class Decider(Protocol):
    """Decides for a compiler. It can be pickled."""

    asks: ClassVar[bool] = False
    """Whether it needs a server."""

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


@runtime_checkable
class OfMachine(Protocol):
    """A decider that is another one on each machine."""

    def at(self, machine: Machine, *, again: bool = False) -> Decider:
        """Give the decider for a machine. Pass ``again`` after a compile failed there: a dead server is then restarted.

        Raises:
            UnavailableError: there is no server.

        """
        ...


DECIDERS: Final = Table(
    kind="decider",
    group="policybridge.deciders",
    own={
        "plain": "policybridge_train.compiling.compilation:Plain",
        "policy": "policybridge_train.compiling.policy:ByPolicy",
        "store": "policybridge_train.compiling.store:ByStore",
        "decisions": "policybridge_train.compiling.compilation:ByDecisions",
    },
)
"""Each entry is a class with constructor arguments of its own."""
