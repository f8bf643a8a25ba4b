"""Decisions about inlining and the passes of functions, compiles with them, and the log of the compiler's questions.

The plugin takes them from a store that is written for this compile. A compiler that loads no plugin is asked in LLVM's
interactive mode. A compile in that mode without decisions is nearly always the plain one, but not where LLVM's
machine-learned advisor never inlines and its own does (unreachable calls, recursion). So without decisions there are
two compiles, and the totals are those of the plain one: decisions have to be better than that.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final, cast

import msgspec
import numpy as np

from policybridge_client.decisions import (
    ALL_FUNCTIONS,
    Decision,
    Heading,
    PassChoice,
    Section,
    SiteLog,
    Store,
    format_store,
    function_key,
    read_sites,
)
from policybridge_client.decisions.passes import Action
from policybridge_client.decisions.sites import Numbers
from policybridge_client.decisions.text import LEVELS
from policybridge_client.llvm.asked import asked
from policybridge_client.llvm.process import Surroundings
from policybridge_core.errors import PreconditionError
from policybridge_train.compiling.compiler import CompileTool
from policybridge_train.compiling.decider import Command, Compilation, Decider, compile_command, plugin_command
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.result import NUMBERS, CompileResult, DecisionLog
from policybridge_train.objects.elf import ObjectFile
from policybridge_train.processes.process import Status

Decisions = Mapping[str, bool]
"""By site: whether to inline; LLVM decides about all others."""

MODULE: Final = ""
"""The name under which a module's own choices are kept; its key is that of choices for all functions."""

_SPELT_OUT: Final = re.compile(rb"\\x([89a-f][0-9a-f])")

_COST: Final = 5
"""LLVM's cost of an instruction (llvm/Analysis/InlineCost.h)."""

_BLOCK: Final = 5
"""Instructions of a basic block, on average."""


class Decided(msgspec.Struct, frozen=True, array_like=True):
    """Decisions of one compile; also those that a move turns.

    Attributes:
        inlining: by site: whether to inline. LLVM decides about all others.
        passes: by function: its choices, each an action and a name as a store has them (``skip machine-cse``).

    """

    inlining: Mapping[str, bool] = {}
    passes: Mapping[str, Sequence[str]] = {}

    @property
    def count(self) -> int:
        """The number of decisions."""
        return len(self.inlining) + sum(map(len, self.passes.values()))

    def turned(self, move: "Decided") -> "Decided":
        """Give these after a move: its sites as it has them, and its choices made, or taken back if they are here."""
        passes = dict(self.passes)
        for function, choices in move.passes.items():
            there = passes.pop(function, ())
            left = [*(each for each in there if each not in choices), *(each for each in choices if each not in there)]
            if left:
                passes[function] = left
        return Decided({**self.inlining, **move.inlining}, passes)

    @property
    def back(self) -> "Decided":
        """The move that takes this one back."""
        return Decided({site: not inline for site, inline in self.inlining.items()}, self.passes)

    def choices(self) -> Iterator[PassChoice]:
        """Give the choices of passes as a store has them."""
        for function, its in self.passes.items():
            for each in its:
                word, _, name = each.partition(" ")
                yield PassChoice(function_key(_name_of(function)), cast("Action", word), name, _name_of(function))

    @property
    def decider(self) -> "ByDecisions":
        """The decider that makes these decisions."""
        return ByDecisions(self.inlining, tuple(self.choices()))


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


def passes_of(choices: Sequence[PassChoice], functions: Iterable[str]) -> dict[str, list[str]]:
    """Give the choices of a store by the names of a module's functions; those of other functions are left out."""
    names = {function_key(_name_of(function)): function for function in functions} | {ALL_FUNCTIONS: MODULE}
    found: dict[str, list[str]] = {}
    for choice in choices:
        if choice.key in names:
            found.setdefault(names[choice.key], []).append(f"{choice.action} {choice.name}")
    return found


def _name_of(function: str) -> str:
    """Give the name of a function whose bytes that are no UTF-8 are spelt out (`compiling.result.as_utf8`)."""
    spelt = function.encode("utf-8")
    return _SPELT_OUT.sub(lambda found: bytes.fromhex(found[1].decode()), spelt).decode("utf-8", "surrogateescape")
