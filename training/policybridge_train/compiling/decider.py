"""Deciders (the compiler itself, a policy's server, or a store), and the command of one compile."""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final, Protocol, Self, runtime_checkable

import msgspec
from msgspec.structs import asdict

from policybridge_core.plugins import Table
from policybridge_train.compiling.compiler import Compiler, CompileTool
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.lto import LinkedModule, find_lld, plugin_variables
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.result import CompileResult, DecisionLog
from policybridge_train.farms.contract import Machine
from policybridge_train.objects.elf import ObjectFile
from policybridge_train.processes.process import Running, Status, compile_by

# Arguments of `clang -cc1` (clang/include/clang/Driver/Options.td, CC1Option) that still matter for bitcode: they steer
# LLVM's pipeline and its code generator. Those of the preprocessor and of the front end have done their work.
_WITH_VALUE: Final = frozenset(
    shlex.split("""
        -triple -mrelocation-model -pic-level -target-cpu -target-feature -tune-cpu -target-abi -stack-protector
        -stack-protector-buffer-size -mllvm -mcode-model -mfloat-abi -mthread-model -split-stacks
    """)
)
_ALONE: Final = re.compile(
    r"-O[0-3sz]?|-pic-is-pie|-ffunction-sections|-fdata-sections|-fno-builtin.*|-ffreestanding|-vectorize-(loops|slp)"
    r"|-f(no-)?unroll-loops|-funwind-tables=\d|-mframe-pointer=[\w-]+|-exception-model=\w+|-faddrsig|-fno-plt"
    r"|-mconstructor-aliases|-fno-jump-tables|-munwind-tables|-fuse-init-array|-fno-use-init-array|-mnoexecstack"
    r"|-femulated-tls|-f(no-)?unique-section-names|-mcode-model=\w+|-mcmodel=\w+|-ffp-contract=\w+|-fmath-errno"
    r"|-fwrapv|-fdwarf2-cfi-asm|-flto|-disable-free|-fsanitize=.*|-fxray.*"
)


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
        variables: of the command, for a linker's plugin.
        sessions: the file to which the plugin writes the ids of its sessions; ``None``: it writes none.

    """

    words: Sequence[str]
    limits: Limits
    running: Running
    way: str = "plain"
    sessions: Path | None = None
    variables: Mapping[str, str] = field(default_factory=dict)

    @property
    def again(self) -> Sequence[str]:
        """The command."""
        given = [f"{name}={value}" for name, value in self.variables.items()]
        return ["env", *given, *self.words] if given else self.words

    def run(self) -> CompileResult:
        """Compile."""
        # Disable ccache: exploration decides by chance, so the object must not be cached for this command line.
        environment = {**os.environ, "CCACHE_DISABLE": "1", **self.variables}
        done = compile_by(self.words, self.limits, environment, running=self.running)
        sessions = sessions_of(self.sessions) if self.sessions and done.status is Status.OK else ()
        return CompileResult(sessions=sessions, **asdict(done))


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
        words = compile_command(tool.compiler, module, output, [*extra, *self.arguments])
        return Command(words, tool.limits, tool.running)


def compile_command(compiler: Compiler, module: Module, output: Path, extra: Sequence[str] = ()) -> list[str]:
    """Give the command that compiles a module to an object file; ``extra`` are further arguments of cc1.

    Raises:
        NotFoundError: the module is one of link time, and there is no LLD of this LLVM.
        InvalidError: LLD has no such argument.

    """
    if isinstance(module, LinkedModule):
        return [str(find_lld(compiler)), *module.link(output, extra)]
    flags = backend_arguments(module.arguments)
    return [*compiler.start, "-cc1", "-emit-obj", *flags, *extra, "-o", str(output), "-x", "ir", str(module.bitcode)]


def plugin_command(
    tool: CompileTool, module: Module, output: Path, extra: Sequence[str], options: Iterable[tuple[str, str]]
) -> tuple[list[str], dict[str, str]]:
    """Give the command that compiles a module with the plugin, and its variables: LLD knows no options of a plugin.

    Args:
        tool: the compiler.
        module: to compile.
        output: the object.
        extra: further arguments of cc1.
        options: of the plugin, by their names; those of one name are several values.

    Raises:
        PolicyBridgeError: see `compile_command`.

    """
    words = compile_command(tool.compiler, module, output, extra)
    if isinstance(module, LinkedModule):
        return [*words, f"--load-pass-plugin={tool.plugin}"], plugin_variables(options)
    return tool.with_plugin(words, [f"-policybridge-{name}={value}" for name, value in options]), {}


def backend_arguments(arguments: Sequence[str]) -> Iterator[str]:
    """Give those of a recorded module's arguments that still matter for bitcode, in their order."""
    words = iter(arguments)
    for word in words:
        if word in _WITH_VALUE:
            value = next(words, None)
            if value is not None:
                yield from (word, value)
        elif _ALONE.fullmatch(word):
            yield word
