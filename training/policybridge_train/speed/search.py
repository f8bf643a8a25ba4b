"""The search for a faster program: each step compiles the modules that cost much, links the program and runs it."""

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from time import monotonic
from typing import Final, NamedTuple

import msgspec

from policybridge_core.errors import PolicyBridgeError, PreconditionError
from policybridge_train.compiling.decisions import Decided
from policybridge_train.compiling.job import FarmCompiler
from policybridge_train.compiling.limits import Limits
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.result import CompileResult
from policybridge_train.objects.elf import ObjectFile
from policybridge_train.processes.process import Running
from policybridge_train.processes.threads import for_each
from policybridge_train.speed.costs import owned, shares
from policybridge_train.speed.moves import LISTED, Move, Part, Room, Rules, Seen, Trying, turned
from policybridge_train.speed.relinking import Relinking
from policybridge_train.speed.running import Ran, Runner
from policybridge_train.tasks.callgrind import Counted
from policybridge_train.tuning.choices import Gains
from policybridge_train.tuning.module import compile_with
from policybridge_train.tuning.search import Search

_HOT: Final = 0.005
"""The share of the program's cycles from which on a function is worth a try."""

_CHECKED_EVERY: Final = 8
"""Runs after which the accepted moves are run alone."""

_CLOSING: Final = 2
"""The last runs of a budget, for that."""

_SAME: Final = 0.002
"""The share by which the counts of two runs of one program may differ."""


@dataclass(frozen=True)
class Making:
    """Makes programs of decisions.

    Attributes:
        compiler: of modules.
        relinking: of the program.
        runner: runs it.
        jobs: compiles at a time.
        running: compilers and runs.
        objects: the folder of the objects.
        limits: of a link.

    """

    compiler: FarmCompiler
    relinking: Relinking
    runner: Runner
    jobs: int
    running: Running
    objects: Path
    limits: Limits
    _made: dict[str, tuple[CompileResult, Path]] = field(default_factory=dict)

    def compiled(self, modules: Sequence[tuple[Module, Decided]]) -> list[tuple[CompileResult, Path]]:
        """Compile modules; those that were compiled with the same decisions before are there already.

        Raises:
            PolicyBridgeError: one does not compile.

        """
        # An exception in a job ends all that runs, and a compile that fails is no reason for it.
        made = list(for_each(lambda each: self._tried(*each), modules, self.jobs, self.running))
        for each in made:
            if isinstance(each, PolicyBridgeError):
                raise each
        return [each for each in made if not isinstance(each, PolicyBridgeError)]

    def _tried(self, module: Module, decided: Decided) -> tuple[CompileResult, Path] | PolicyBridgeError:
        try:
            return self._one(module, decided)
        except PolicyBridgeError as error:
            if self.running.over:
                raise
            return error

    def _one(self, module: Module, decided: Decided) -> tuple[CompileResult, Path]:
        key = f"{module.name} {hashlib.sha256(msgspec.msgpack.encode(decided, order='deterministic')).hexdigest()}"
        if key not in self._made:
            result = compile_with(self.compiler, module, decided, keep=True)
            path = self.objects / f"{result.digest}.o"
            path.write_bytes(result.content)
            self._made[key] = msgspec.structs.replace(result, content=b""), path
        return self._made[key]

    def linked(self, objects: Mapping[str, Path], letter: str) -> tuple[Path, int]:
        """Link the program; give its file and its bytes of text."""
        program = self.runner.place(letter)
        self.relinking.link(objects, program, self.objects, self.limits, self.running)
        return program, ObjectFile.read(program).text


class Whole(NamedTuple):
    """A program with decisions, as it was run without moves.

    Attributes:
        counted: of the run.
        text: bytes.
        decided: by module.
        results: of the compiles, by module.
        objects: by module.

    """

    counted: Counted
    text: int
    decided: Mapping[str, Decided]
    results: Mapping[str, CompileResult]
    objects: Mapping[str, Path]

    @property
    def cycles(self) -> int:
        """Of the run."""
        return self.counted.total


@dataclass(frozen=True)
class Asked:
    """What the user asks of a search.

    Attributes:
        budget: compiles of each module.
        growth: percent by which the text may grow.
        inline: whether decisions about calls are tried.
        passes: whether choices of passes are.
        spared: patterns of functions that stay as they are.
        until: when to end, by `time.monotonic`.

    """

    budget: int
    growth: float
    inline: bool = True
    passes: bool = True
    spared: Collection[str] = ()
    until: float | None = None


class SpeedSearch:
    """Finds decisions for one program.

    Args:
        modules: of the program, by name, in the order of the link.
        making: makes and runs programs.
        asked: how long, and what.

    Attributes:
        before: the program by LLVM's own decisions.
        best: the fastest that was found; ``before`` until there is one.
        hot: the functions that cost much, and their shares of the cycles.
        runs: programs that were run under callgrind.
        failures: moves that made a program which does not work, or that did not compile.

    Raises:
        PolicyBridgeError: the program cannot be compiled, linked or run, or does not repeat.

    """

    def __init__(self, modules: Sequence[Module], making: Making, asked: Asked) -> None:
        self._making = making
        self._asked = asked
        self.failures: list[str] = []
        made = making.compiled([(module, Decided()) for module in modules])
        results = {module.name: result for module, (result, _) in zip(modules, made, strict=True)}
        objects = {module.name: path for module, (_, path) in zip(modules, made, strict=True)}
        program, text = making.linked(objects, "a")
        self._counted, self._ran = _repeated(making.runner, program)
        self.runs = 2
        self.spent = 1
        own = {module.name: Decided() for module in modules}
        self.before = self.best = Whole(self._counted, text, own, results, objects)
        self._owned = owned(results)
        self._room = Room(text * asked.growth / 100)
        parts = shares(results, self._counted, self._owned)
        self.hot = {name: share for name, share in parts.items() if share >= _HOT}
        self._parts = [
            Part(module, search, dict(results[module.name].sizes))
            for module in modules
            if self._owned[module.name] & self.hot.keys()
            for search in [Search.begin(self._seen(module.name, results[module.name], self._counted).result)]
        ]
        gains = Gains(prior=LISTED)
        self._rules = Rules(self._room, gains, self.before.cycles)
        self._trying = Trying(gains, inline=asked.inline, passes=asked.passes)
        self._most = 1 << 20

    @property
    def modules(self) -> int:
        """How many modules are tuned."""
        return len(self._parts)

    def run(self) -> None:
        """Search until the budget is spent or nothing is left to try."""
        since = 0
        while self._parts and self.spent < self._asked.budget and not self._is_late:
            left = self._asked.budget - self.spent
            due = since >= _CHECKED_EVERY or left <= _CLOSING
            moves = {} if due else self._moves()
            if due or not moves:
                if self._is_checked:
                    if due and left > _CLOSING:
                        since = 0
                        continue
                    return
                self._check()
                since = 0
            else:
                self._try(moves)
                since += 1
        if not self._is_checked and self.spent < self._asked.budget:
            self._check()

    @property
    def _is_late(self) -> bool:
        return self._asked.until is not None and monotonic() > self._asked.until

    @property
    def _is_checked(self) -> bool:
        return all(part.search.is_checked for part in self._parts)

    def searches(self) -> list[tuple[Module, Search]]:
        """Give the modules with the best decisions, for a store."""
        for part in self._parts:
            name, search = part.module.name, part.search
            result, decided = self.best.results[name], self.best.decided[name]
            there = {function: its for function, its in decided.passes.items() if function in result.costs}
            search.best, search.best_object = Decided(result.deviations(), there), result.digest
            search.names = {site.key: (site.caller, site.callee) for site in result.sites}
        return [(part.module, part.search) for part in self._parts]

    def _seen(self, module: str, result: CompileResult, counted: Counted) -> Seen:
        return Seen.of(result, counted, self._owned[module])

    def _moves(self) -> dict[str, list[Move]]:
        found: dict[str, list[Move]] = {}
        left = self._most
        for part in self._parts:
            moves = self._trying.moves(part, self.hot, self._spared(part), self._counted)[:left]
            left -= len(moves)
            if moves:
                found[part.module.name] = moves
        return found

    def _spared(self, part: Part) -> set[str]:
        return {name for name in part.search.sizes if any(fnmatchcase(name, pattern) for pattern in self._asked.spared)}

    def _try(self, moves: Mapping[str, list[Move]]) -> None:
        decided = {
            part.module.name: turned(part.search.pinned(), moves.get(part.module.name, ())) for part in self._parts
        }
        try:
            _, seen = self._measured(decided)
        except PolicyBridgeError as error:
            if self._making.running.over:
                raise
            self._fail(moves, str(error))
            return
        self._most = min(1 << 20, 2 * self._most)
        for part in self._parts:
            name = part.module.name
            part.settle(moves.get(name, ()), seen[name], self._rules)

    def _fail(self, moves: Mapping[str, list[Move]], why: str) -> None:
        """Try fewer moves at a time until it is known which one makes a program that does not work."""
        number = sum(map(len, moves.values()))
        self._most = max(1, number // 2)
        if number > 1:
            return
        for part in self._parts:
            for move in moves.get(part.module.name, ()):
                part.refuse(move)
                self.failures.append(f"{part.module.name}: {move.name}: {why}")

    def _check(self) -> None:
        """Run the accepted moves alone; keep them if the program is the fastest so far."""
        decided = {part.module.name: part.search.pinned() for part in self._parts}
        accepted = {part.module.name: part.search.decided for part in self._parts}
        try:
            whole, seen = self._measured(decided)
        except PolicyBridgeError as error:
            if self._making.running.over:
                raise
            self.failures.append(f"the accepted moves together: {error}")
            self._go_back()
            return
        if whole.text > self._most_text:
            # Constants of its own are no part of a function's bytes.
            self._go_back()
            self._room.left /= 2
            return
        for part in self._parts:
            part.search.take(accepted[part.module.name], seen[part.module.name].result)
            part.bytes = dict(seen[part.module.name].bytes)
        self._counted = whole.counted
        self._room.left = self._most_text - whole.text
        if whole.cycles < self.best.cycles:
            self.best = whole

    @property
    def _most_text(self) -> float:
        return self.before.text * (1 + self._asked.growth / 100)

    def _go_back(self) -> None:
        """Return to the best program, which was run. The moves that are lost stay tried."""
        self._counted, self._room.left = self.best.counted, self._most_text - self.best.text
        for part in self._parts:
            name = part.module.name
            result = self.best.results[name]
            seen = self._seen(name, result, self._counted)
            part.search.accepted = []
            part.search.go_on(self.best.decided[name], seen.result)
            part.bytes = dict(seen.bytes)

    def _measured(self, decided: Mapping[str, Decided]) -> tuple[Whole, dict[str, Seen]]:
        """Compile the tuned modules with decisions, link and run.

        Raises:
            PolicyBridgeError: one of these failed, or the program prints something else.

        """
        self.spent += 1
        parts = [part.module for part in self._parts]
        made = self._making.compiled([(module, decided[module.name]) for module in parts])
        results = {module.name: result for module, (result, _) in zip(parts, made, strict=True)}
        objects = {module.name: path for module, (_, path) in zip(parts, made, strict=True)}
        objects = {**self.before.objects, **objects}
        program, text = self._making.linked(objects, "b")
        self.runs += 1
        counted, ran = self._making.runner.count(program)
        if ran.output != self._ran.output:
            raise PreconditionError("the program prints something else")
        seen = {name: self._seen(name, result, counted) for name, result in results.items()}
        all_decided, all_results = {**self.before.decided, **decided}, {**self.before.results, **results}
        whole = Whole(counted, text, all_decided, all_results, objects)
        return whole, seen


def _repeated(runner: Runner, program: Path) -> tuple[Counted, Ran]:
    """Run a program twice.

    Raises:
        PreconditionError: the runs differ.

    """
    (first, ran), (second, again) = runner.count(program), runner.count(program)
    if ran.output != again.output:
        raise PreconditionError(
            "--run prints something else in each run, so that nothing can be compared: let it print no times, "
            "addresses or random numbers (fix its seed)"
        )
    if abs(first.total - second.total) > _SAME * first.total:
        raise PreconditionError(
            f"--run takes {first.total:,} cycles in one run and {second.total:,} in the next: let it work alike each "
            "time, without times, threads and random numbers (fix its seed)"
        )
    return first, ran
