"""Deciders: the compiler itself, a policy's server, or a store."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, Protocol, Self

import msgspec
from msgspec.structs import replace

from policybridge_core.plugins import Table
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.process import compile_by
from policybridge_train.compiling.result import CompileResult, DecisionLog
from policybridge_train.compiling.tool import CompileTool
from policybridge_train.farms.contract import Place
from policybridge_train.objects.elf import ObjectFile


class Compilation(Protocol):
    """One run of a compiler, which is to write an object.

    Attributes:
        way: of the decisions into the compiler: ``plain``, ``plugin`` or ``interactive``.
        again: the words of the command that a person runs to repeat it; empty if no command can.

    """

    @property
    def way(self) -> str:
        """The way of the decisions into the compiler."""
        ...

    @property
    def again(self) -> Sequence[str]:
        """The words that repeat it."""
        ...

    def run(self, tool: CompileTool) -> CompileResult:
        """Compile. The result has no costs and no totals yet.

        Raises:
            OSError: the compiler cannot be started.
            PolicyBridgeError: it cannot be asked, or all compilers were ended.

        """
        ...

    def log(self) -> tuple[ObjectFile, DecisionLog] | None:
        """Give the decisions, and the object whose functions they made; ``None`` if there is no log of them."""
        ...


class Decider(Protocol):
    """Decides for a compiler. It can be pickled.

    Attributes:
        asks: whether it needs a server.

    """

    @property
    def asks(self) -> bool:
        """Whether it needs a server."""
        ...

    def at(self, place: Place, *, again: bool = False) -> Self:
        """Give the decider as it is at a place; ``again`` after a failure there: a server that died is started again.

        Raises:
            UnavailableError: there is no server.

        """
        ...

    def compilation(self, tool: CompileTool, module: Module, output: Path, extra: Sequence[str] = ()) -> Compilation:
        """Give the compilation of a module to an object; other files of it go into the object's folder.

        Args:
            tool: the compiler.
            module: to compile.
            output: the file of the object.
            extra: further arguments of cc1.

        Raises:
            PolicyBridgeError: this compiler cannot do it; the message names the missing part.

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
"""Each is a class; its arguments are its own."""


@dataclass(frozen=True)
class Command:
    """A compiler that asks nobody, or whose plugin asks.

    Attributes:
        words: the command.
        way: see `Compilation`.
        sessions: where the plugin writes the ids of its sessions; ``None`` if it does not.

    """

    words: Sequence[str]
    way: str = "plain"
    sessions: Path | None = None

    @property
    def again(self) -> Sequence[str]:
        """The command."""
        return self.words

    def run(self, tool: CompileTool) -> CompileResult:
        """Compile."""
        # A compiler cache would keep objects that depend on chance.
        environment = {**os.environ, "CCACHE_DISABLE": "1"}
        done = compile_by(self.words, tool.limits, environment, running=tool.running)
        return replace(done, sessions=sessions_of(self.sessions)) if done.ok and self.sessions else done

    def log(self) -> tuple[ObjectFile, DecisionLog] | None:
        """Give nothing."""
        return None


@dataclass(frozen=True)
class Plain:
    """LLVM's own decisions.

    Attributes:
        arguments: further arguments of ``clang -cc1``.

    """

    arguments: tuple[str, ...] = ()
    asks: ClassVar[bool] = False

    def at(self, _: Place, *, again: bool = False) -> Self:  # noqa: ARG002 - of `Decider`
        """Give this: it is the same everywhere."""
        return self

    def compilation(self, tool: CompileTool, module: Module, output: Path, extra: Sequence[str] = ()) -> Compilation:
        """Give the plain compilation."""
        return Command(tool.compiler.command(module, output, [*extra, *self.arguments]))


class _Statistics(msgspec.Struct):
    """The part of the plugin's statistics that is read here."""

    sessions: list[str] = []


def sessions_of(statistics: Path) -> Sequence[str]:
    """Give the ids of a compilation's sessions, from the plugin's statistics."""
    try:
        return msgspec.json.decode(statistics.read_bytes(), type=_Statistics).sessions
    except FileNotFoundError:
        # A module about which the compiler asks nothing has no session, and no file.
        return []
