"""The search for a faster program: each step compiles the modules that cost much, links the program and runs it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from time import monotonic
from typing import Final

from policybridge_core.errors import PolicyBridgeError, PreconditionError
from policybridge_train.compiling.module import Module
from policybridge_train.compiling.result import CompileResult
from policybridge_train.speed.asked import Asked
from policybridge_train.speed.calls import FlipGains, Move
from policybridge_train.speed.choosing import Timing, fastest
from policybridge_train.speed.costs import owned, shares
from policybridge_train.speed.keeping import Kept
from policybridge_train.speed.making import Making, Whole, repeated
from policybridge_train.speed.moves import FIRST, LISTED, Trying, turned
from policybridge_train.speed.parts import Part, Room, Rules, Seen, too_much
from policybridge_train.tasks.callgrind import Counted
from policybridge_train.tuning.choices import Gains
from policybridge_train.tuning.flips import Decided
from policybridge_train.tuning.search import Search

_HOT: Final = 0.005
"""The share of the program's cycles from which on a function is worth a try."""

_FIRST_TRIES: Final = 3
"""Runs of the first moves, at most."""

_CHECKED_EVERY: Final = 8
"""Runs after which the accepted moves are run alone."""

_CLOSING: Final = 2
"""The last runs of a budget, for that."""


class SpeedSearch:
    """Finds decisions for one program.

    Args:
        modules: of the program, by name, in the order of the link.
        making: makes and runs programs.
        asked: how long, and what.
        kept: keeps the best decisions for a later search for the same.

    Attributes:
        before: the program by LLVM's own decisions.
        best: the one with the fewest cycles so far, and at last the fastest; ``before`` if no other is better.
        found: those that were the best, in the order of the search.
        hot: the functions that cost much, and their shares of the cycles.
        own: the share of the cycles that functions of the modules cost by themselves.
        runs: programs that were run under callgrind.
        failures: moves that made a program which does not work, or that did not compile.

    Raises:
        PolicyBridgeError: the program cannot be compiled, linked or run, or does not repeat.

    """

    def __init__(self, modules: Sequence[Module], making: Making, asked: Asked, kept: Kept | None = None) -> None:
        self._making = making
        self._asked = asked
        self._kept = kept
        self.failures: list[str] = []
        self.found: list[Whole] = []
        made = making.compiled([(module, Decided()) for module in modules])
        results = {module.name: result for module, (result, _) in zip(modules, made, strict=True)}
        objects = {module.name: path for module, (_, path) in zip(modules, made, strict=True)}
        program, text = making.linked(objects, "a")
        self._counted, self._ran = repeated(making.runner, program)
        self.runs = 2
        self.spent = 1
        own = {module.name: Decided() for module in modules}
        self.before = self.best = Whole(self._counted, text, own, results, objects)
        self._owned = owned(results)
        there = {name for each in self._owned.values() for name in each.names}
        self.own = sum(self._counted.own.get(name, 0) for name in there) / max(1, self._counted.total)
        room = text * asked.growth / 100
        self._room = Room(room, room)
        parts = shares(results, self._counted, self._owned)
        self.hot = {name: share for name, share in parts.items() if share >= _HOT}
        self._parts = [
            Part(module, self._owned[module.name], Search.begin(seen.result), seen.bytes, seen.bytes)
            for module in modules
            if self._owned[module.name].names & self.hot.keys()
            for seen in [self._seen(module.name, results[module.name], self._counted)]
        ]
        gains, flips = Gains(prior=LISTED), FlipGains(self.before.cycles)
        self._rules = Rules(self._room, gains, flips, self.before.cycles)
        self._trying = Trying(gains, flips, inline=asked.inline, passes=asked.passes)
        self._most = 1 << 20

    @property
    def modules(self) -> int:
        """How many modules are tuned."""
        return len(self._parts)

    def run(self) -> None:
        """Search until the budget is spent or nothing is left to try."""
        if self._parts and self.spent < self._asked.budget and not self._go_on():
            self._begin()
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
                self._try(moves, self._rules)
                since += 1
        if not self._is_checked and self.spent < self._asked.budget:
            self._check()

    def choose(self, timing: Timing) -> None:
        """Make the fastest of the programs found the best one."""
        if self.found:
            self.best = fastest(self.found, timing)

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
        trying = self._trying
        return self._limited(lambda part, taken: trying.moves(part, self.hot, self._spared(part), self._counted, taken))

    def _limited(self, moves_of: Callable[[Part, set[str]], list[Move]]) -> dict[str, list[Move]]:
        found: dict[str, list[Move]] = {}
        left, taken = self._most, set[str]()
        for part in self._parts:
            moves = moves_of(part, taken)[:left]
            left -= len(moves)
            if moves:
                found[part.module.name] = moves
        return found

    def _spared(self, part: Part) -> set[str]:
        return {name for name in part.search.sizes if any(fnmatchcase(name, pattern) for pattern in self._asked.spared)}

    def _try(self, moves: Mapping[str, list[Move]], rules: Rules) -> bool:
        """Run a program of moves, and accept those that the rules do; ``False`` if it does not work."""
        decided = {
            part.module.name: turned(part.search.pinned(), moves.get(part.module.name, ())) for part in self._parts
        }
        try:
            _, seen = self._measured(decided)
        except PolicyBridgeError as error:
            if self._making.running.over:
                raise
            self._fail(moves, str(error))
            return False
        self._most = min(1 << 20, 2 * self._most)
        for part in self._parts:
            its = seen[part.module.name]
            changed = part.settle(moves.get(part.module.name, ()), its, rules) & part.owned.shared
            for other in self._parts if changed else ():
                other.learn({name: its.costs[name] for name in changed})
        return True

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

    def _begin(self) -> None:
        """Try choices on all functions that are not hot: those keep them that become neither slower nor larger.

        If the program does not work, half of them are tried, then a quarter.
        """
        rules, trying = replace(self._rules, gains=Gains(prior={FIRST: 0.0}), share=0.0), self._trying
        for _ in range(_FIRST_TRIES):
            moves = self._limited(lambda part, taken: trying.first(part, self._spared(part) | self.hot.keys(), taken))
            if not moves or self._try(moves, rules) or self.spent >= self._asked.budget or self._is_late:
                return

    def _go_on(self) -> bool:
        """Begin with the best of an earlier search, if there is one."""
        kept = self._kept.read(part.module.name for part in self._parts) if self._kept else {}
        if kept:
            start = {part.module.name: kept.get(part.module.name, Decided()) for part in self._parts}
            self._run_alone(start, start)
        return bool(kept)

    def _check(self) -> None:
        """Run the accepted moves alone; keep them if the program is the fastest so far."""
        decided = {part.module.name: part.search.pinned() for part in self._parts}
        self._run_alone(decided, {part.module.name: part.search.decided for part in self._parts})

    def _run_alone(self, decided: Mapping[str, Decided], accepted: Mapping[str, Decided]) -> None:
        """Run the program with decisions, and go on from those that are accepted of them, if it is no failure."""
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
            self._give_up(whole, seen, accepted)
            return
        for part in self._parts:
            part.search.take(accepted[part.module.name], seen[part.module.name].result)
            part.begin_at(seen[part.module.name])
        self._counted = whole.counted
        self._room.left = self._most_text - whole.text
        if whole.cycles < self.best.cycles:
            self.best = whole
            self.found.append(whole)
            if self._kept:
                self._kept.write({part.module.name: whole.decided[part.module.name] for part in self._parts})

    def _give_up(self, whole: Whole, seen: Mapping[str, Seen], accepted: Mapping[str, Decided]) -> None:
        """Take back moves of a program whose text is too large; go on from the best program if none has added to it."""
        excess = whole.text - self._most_text
        found = {part.module.name: list(part.regions(seen[part.module.name])) for part in self._parts}
        given_up, growth = too_much((region for regions in found.values() for region in regions), excess)
        if not given_up:
            self._go_back()
            self._room.left /= 2
            return
        for part in self._parts:
            name = part.module.name
            here = given_up & {function for region in found[name] for function in region.functions}
            part.search.go_on(accepted[name], seen[name].result, here)
            part.begin_at(seen[name], here)
        self._counted, self._room.left = whole.counted, max(0.0, growth - excess) / 2

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
            part.begin_at(seen)

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
