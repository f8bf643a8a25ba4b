"""One run of a compiler: plain, with the plugin, or in LLVM's interactive mode.

The plugin takes decisions from a store that is written for this compile. A compiler that loads no plugin is asked in
the interactive mode. A compile in that mode without decisions is nearly always the plain one, but not where LLVM's
machine-learned advisor never inlines and its own does (unreachable calls, recursion). So without decisions there are
two compiles, and the totals are those of the plain one: decisions have to be better than that.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final

import msgspec
import numpy as np
from msgspec.structs import asdict

from policybridge_client.decisions import (
    Decision,
    Heading,
    PassChoice,
    Section,
    SiteLog,
    Store,
    format_store,
    read_sites,
)
from policybridge_client.decisions.sites import Numbers
from policybridge_client.decisions.text import LEVELS
from policybridge_client.llvm.asked import asked
from policybridge_client.llvm.surroundings import Surroundings
from policybridge_core.errors import PreconditionError
from policybridge_train.compiling.compiler import Compiler, CompileTool
from policybridge_train.compiling.decider import Compilation, Decider
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.lto import LinkedModule, find_lld, plugin_variables
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.result import NUMBERS, CompileResult, DecisionLog
from policybridge_train.objects.elf import ObjectFile
from policybridge_train.processes.process import Running, Status, compile_by

Decisions = Mapping[str, bool]
"""By site: whether to inline; LLVM decides about all others."""

_COST: Final = 5
"""LLVM's cost of an instruction (llvm/Analysis/InlineCost.h)."""

_BLOCK: Final = 5
"""Instructions of a basic block, on average."""


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
    flags = [*module.backend_arguments, *extra]
    return [*compiler.start, "-cc1", "-emit-obj", *flags, "-o", str(output), "-x", "ir", str(module.bitcode)]


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


@dataclass(frozen=True)
class ByDecisions(Decider):
    """Decisions by the keys that `CompileTool.by` says; LLVM's own elsewhere.

    Attributes:
        decisions: about inlining.
        passes: choices about each function's passes; these need the plugin.

    """

    decisions: Decisions
    passes: tuple[PassChoice, ...] = ()

    def compilation(self, tool: CompileTool, module: Module, output: Path, extra: Sequence[str] = ()) -> Compilation:
        """Give the compilation with these decisions."""
        if tool.plugin is None:
            words = compile_command(tool.compiler, module, output, extra)
            return InteractiveCompile(tool, words, self.decisions, output)
        sites = output.with_name("sites")
        options = [("sites", str(sites)), ("module", module.name)]
        if self.decisions or self.passes:
            store = output.with_name("store")
            self._write_trial(module, tool.compiler.major, store)
            options.append(("decisions", str(store)))
        words, variables = plugin_command(tool, module, output, extra, options)
        return Logged(words, tool.limits, tool.running, "plugin", variables=variables, sites=sites)

    def _write_trial(self, module: Module, major: int, path: Path) -> None:
        """Write a store for one compile, which fits the module whatever the level of its functions is."""
        made = tuple(Decision(key, inline) for key, inline in self.decisions.items())
        headings = [Heading(major, level, "site", None, module.name, module.phase) for level in LEVELS]
        sections = [Section(heading, made, self.passes) for heading in headings]
        # Not by `write_store`, which waits for the disk: this file is read once, and gone.
        path.write_bytes(format_store(Store(sections)))


@dataclass(frozen=True)
class Logged(Command):
    """A compiler whose plugin logs all sites.

    Attributes:
        sites: the file of the log.

    """

    sites: Path = Path()
    again: ClassVar[Sequence[str]] = ()

    def log(self, made: ObjectFile) -> tuple[ObjectFile, DecisionLog]:
        """Give the plugin's log.

        Raises:
            PreconditionError: there is none, because LLVM does not inline at this level.

        """
        if not self.sites.exists():
            raise PreconditionError("LLVM does not inline at its level (-O0): record it at another one (--level Oz)")
        log = read_sites(self.sites)
        return made, DecisionLog.of(log, log.numbers, made.weak)


class InteractiveCompile:
    """A compiler that asks in the interactive mode; see `policybridge_client.llvm.asked`."""

    way: Final = "interactive"
    again: Final[Sequence[str]] = ()

    def __init__(self, tool: CompileTool, words: Sequence[str], decisions: Decisions, output: Path) -> None:
        self._tool = tool
        self._words = words
        self._decisions = decisions
        self._output = output

    def run(self) -> CompileResult:
        """Compile; without decisions, compile plainly as well.

        Raises:
            PreconditionError: LLVM's own decisions are not known: up to LLVM 20, at other levels than -Oz.

        """
        limits, running = self._tool.limits, self._tool.running
        surroundings, major = Surroundings(limits=limits, counted=running.counted), self._tool.compiler.major
        done = asked(self._words, self._decisions, surroundings, major)
        result = CompileResult.of(done.status, done.seconds, done.message, limits.seconds if done.late else None)
        if result.status is not Status.OK:
            return result
        self._asked: tuple[ObjectFile, SiteLog] = ObjectFile.read(self._output), done.log
        return result if self._decisions else Command(self._words, limits, running).run()

    def log(self, _: ObjectFile) -> tuple[ObjectFile, DecisionLog]:
        """Give the object that was asked about, and the compiler's questions."""
        made, log = self._asked
        return made, DecisionLog.of(log, _numbers(log, made), made.weak)


def _numbers(log: SiteLog, made: ObjectFile) -> Mapping[str, Numbers]:
    """Give the features that the plugin would log: LLVM sends some, the object has some; the rest is estimated."""
    count, sent = len(log.keys), log.numbers
    if not count:
        return dict.fromkeys(NUMBERS, np.zeros(0))
    shared = set(made.globals())
    return {
        "callee_local": np.array([name not in shared for name in log.callee], np.float64),
        "callee_uses": sent["callee_uses"],
        "cost": sent["cost"],
        "threshold": sent["threshold"],
        "caller_instructions": sent["caller_basic_block_count"] * _BLOCK,
        "callee_instructions": sent["unsimplified_common_instructions"] / _COST + sent["simplified_instructions"],
        "callee_blocks": sent["callee_blocks"],
        "constant_arguments": sent["constant_arguments"],
        "arguments": np.maximum(-sent["callsite_cost"] / _COST - 1, 0),
        "loop_depth": np.zeros(count),
    }
