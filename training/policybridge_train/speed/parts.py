"""The modules of a program while it is tuned: the cost that each move saves, and the accepted moves."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from policybridge_train.compiling.module import Module
from policybridge_train.compiling.result import CompileResult
from policybridge_train.speed.calls import FlipGains, Move
from policybridge_train.speed.costs import Owned
from policybridge_train.tasks.callgrind import Counted
from policybridge_train.tuning.choices import Choice, Gains
from policybridge_train.tuning.flips import CallGraph
from policybridge_train.tuning.search import Accepted, Search, Tried

_SCALE: Final = 200_000
"""The whole program's cycles, in the units of `Gains`, where a prior weighs as much as 20,000: a tenth of a program."""

_LEAST: Final = 0.0002
"""The share of the program's cycles that a move must save: the code of others moves, too, and so do their misses."""

_WORTH: Final = 0.002
"""The share of the program's cycles that moves must save for all its room: else the first ones take it for little."""

_ALIGNED: Final = 16
"""Bytes at whose multiples functions begin, unless they are optimised for size."""


@dataclass
class Room:
    """The bytes of text that accepted moves may add to the program: in all, and still."""

    whole: float
    left: float

    def take(self, growth: float) -> bool:
        """Take room for a move; ``False`` if there is not enough."""
        if growth > max(0.0, self.left):
            return False
        self.left -= growth
        return True


@dataclass(frozen=True)
class Rules:
    """Which moves are accepted, of all modules of a program.

    Attributes:
        room: for text.
        gains: learn from choices.
        flips: learn from decisions about calls.
        cycles: of the whole program by LLVM's own decisions.
        share: of these, which a move must save.

    """

    room: Room
    gains: Gains
    flips: FlipGains
    cycles: int
    share: float = _LEAST

    def is_worth(self, saved: float, growth: int) -> bool:
        """Whether a move saves enough cycles for the bytes that it adds."""
        return saved >= self.share * self.cycles and saved * self.room.whole >= _WORTH * self.cycles * growth

    @property
    def scale(self) -> float:
        """What makes cycles the units of the gains."""
        return _SCALE / max(1, self.cycles)


@dataclass
class Part:
    """A module of the program while it is tuned.

    Attributes:
        module: the module.
        owned: its functions.
        search: its state; sizes are cycles here.
        bytes: by function, its bytes under the accepted decisions.
        checked: the bytes when these were last compiled alone.

    """

    module: Module
    owned: Owned
    search: Search
    bytes: Mapping[str, int]
    checked: Mapping[str, int]

    def regions(self, seen: "Seen") -> "Iterable[Region]":
        """Give the regions of the moves that were accepted since then, as they are in a compile of these alone."""
        for names in self.search.regions:
            saved = -self.search.credit(names, self.search.checked_sizes, seen.costs)
            yield Region(frozenset(names), saved, _growth(names, self.checked, seen.bytes))

    def begin_at(self, seen: "Seen", given_up: Collection[str] = ()) -> None:
        """Go on from a compile of the accepted decisions alone, but for functions that were given up."""
        self.bytes = {**seen.bytes, **{name: size for name, size in self.checked.items() if name in given_up}}
        self.checked = self.bytes

    def settle(self, moves: Sequence[Move], seen: "Seen", rules: "Rules") -> set[str]:
        """Accept the moves that saved cycles, the greatest first, as far as there is room; give their functions."""
        search, before, graph = self.search, self.search.sizes, CallGraph(self.search.sites, self.search.sizes)
        credited = []
        for move in moves:
            names = graph.names(move.affected)
            credit = search.credit(names, before, seen.costs)
            credited.append((credit, move, names))
            search.tried[move.name] = Tried(move.surroundings(before), credit)
            if isinstance(move, Choice):
                rules.gains.add(move, before[move.function] * rules.scale, credit * rules.scale)
            else:
                rules.flips.add(move, search.cost(before, names), credit)
        changed: set[str] = set()
        for credit, move, names in sorted(credited, key=lambda each: each[0]):
            growth = _growth(names, self.bytes, seen.bytes)
            if growth > max(0.0, rules.room.whole):
                self.refuse(move)
            elif rules.is_worth(-credit, growth) and rules.room.take(growth):
                search.accept(Accepted(move.turned, names))
                changed.update(names)
        search.update(seen.result, changed)
        self.bytes = {
            **{name: size for name, size in self.bytes.items() if name not in changed},
            **{name: size for name, size in seen.bytes.items() if name in changed},
        }
        return changed

    def learn(self, costs: Mapping[str, float]) -> None:
        """Learn what functions cost after another module's moves were accepted."""
        here = {name: int(cost) for name, cost in costs.items() if name in self.search.sizes}
        self.search.sizes = {**self.search.sizes, **here}

    def refuse(self, move: Move) -> None:
        """Note a move that must not be tried again."""
        self.search.tried[move.name] = Tried(move.surroundings(self.search.sizes), math.nan)


class Region(NamedTuple):
    """Functions that accepted moves have changed together.

    Attributes:
        functions: their names.
        saved: cycles.
        growth: bytes.

    """

    functions: frozenset[str]
    saved: float
    growth: int


def too_much(regions: Iterable[Region], excess: float) -> tuple[set[str], int]:
    """Choose the regions that save least for their bytes, until the excess is gone.

    Returns:
        their functions, and by how many bytes they have grown.

    """
    given_up: set[str] = set()
    growth = 0
    for region in sorted((each for each in regions if each.growth > 0), key=lambda each: each.saved / each.growth):
        if growth >= excess:
            break
        given_up |= region.functions
        growth += region.growth
    return given_up, growth


def _growth(names: Collection[str], before: Mapping[str, int], after: Mapping[str, int]) -> int:
    return sum(_aligned(after.get(name, 0)) - _aligned(before.get(name, 0)) for name in names)


def _aligned(size: int) -> int:
    return -(-size // _ALIGNED) * _ALIGNED


@dataclass(frozen=True)
class Seen:
    """One module's compile in a run.

    Attributes:
        result: of the compile; its costs are the cycles of the module's functions, its total ``text`` their sum.
        costs: the cycles of its functions in the program, also of one that it has dropped while the program runs
            another module's.
        bytes: by function, those that it takes in the program.

    """

    result: CompileResult
    costs: Mapping[str, float]
    bytes: Mapping[str, int]

    @classmethod
    def of(cls, result: CompileResult, counted: Counted, owned: Owned) -> "Seen":
        """Join a compile and a run.

        Args:
            result: of the compile, with bytes by function.
            counted: of the run.
            owned: the module's functions.

        """
        costs = owned.costs(counted, result.costs)
        there = {name: costs.get(name, 0.0) for name in result.costs}
        own = sum(cost for name, cost in there.items() if name not in owned.elsewhere)
        totals = {"text": own, "exec": float(result.text)}
        return cls(replace_costs(result, there, totals), costs, owned.bytes(result.sizes))


def replace_costs(result: CompileResult, costs: Mapping[str, float], totals: Mapping[str, float]) -> CompileResult:
    """Give a compile's result with other costs, and without its object."""
    return CompileResult(costs=costs, totals=totals, digest=result.digest, log=result.log, sections=result.sections)
