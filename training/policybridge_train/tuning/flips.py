"""The decisions of a compile, and flips: turned decisions about one call, or about several calls of one function.

A flip can change the caller, the functions it is inlined into, and a callee that comes or goes. Sets of functions are
the bits of integers, because a search tests thousands of them for overlap in each round.
"""

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, cast

import msgspec

from policybridge_client.decisions import ALL_FUNCTIONS, PassChoice, function_key
from policybridge_client.decisions.passes import Action
from policybridge_train.compiling.compilation import ByDecisions
from policybridge_train.compiling.result import NUMBERS, Site

MODULE: Final = ""
"""The name under which a module's own choices are kept; its key is that of choices for all functions."""

_SPELT_OUT: Final = re.compile(rb"\\x([89a-f][0-9a-f])")
_COST: Final = NUMBERS.index("cost")
_MOST_TOGETHER: Final = 64
"""Calls of one function that are turned together."""


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


class Group(IntEnum):
    """Which calls of one function are turned: one, all of one caller, or all; those that can be turned."""

    ONE = 0
    CALLER = 1
    ALL = 2


class CallGraph:
    """The calls of a module, and those that were inlined, in one compile.

    Other calls of the callee are not affected: the decisions about them are given (`Search.pinned`).

    Args:
        sites: by caller, the calls that were asked about.
        functions: those that the object has.

    """

    def __init__(self, sites: Mapping[str, Sequence[Site]], functions: Collection[str] = ()) -> None:
        self._functions = functions
        self._bits: dict[str, int] = {}
        self._inlined_into: dict[str, set[str]] = {}
        self.calls: dict[str, list[Site]] = {}
        """By callee: all calls of it."""
        self.left: Counter[str] = Counter()
        """By callee: how many calls of it the object has. Those of functions that are gone are gone, too."""
        for caller, its in sites.items():
            for site in its:
                self.calls.setdefault(site.callee, []).append(site)
                self.left[site.callee] += not site.inlined and caller in functions
                if site.inlined:
                    self._inlined_into.setdefault(site.callee, set()).add(caller)
        for name in (*sites, *self.calls, *functions):
            self._bits.setdefault(name, 1 << len(self._bits))
        self._names = list(self._bits)
        self._above: dict[str, int] = {}

    def affected(self, flipped: Sequence[Site], *, inline: bool) -> int:
        """Give the set of functions that change when the decisions about these calls of one function are turned.

        The callee is among them where its last call goes, or its first one comes back.
        """
        changed = self.set_of((flipped[0].callee,)) if self.comes_or_goes(flipped, inline=inline) else 0
        for site in flipped:
            changed |= self.above(site.caller)
        return changed

    def comes_or_goes(self, flipped: Sequence[Site], *, inline: bool) -> bool:
        """Tell whether the object may lose the callee, or get it, when these decisions are turned."""
        callee = flipped[0].callee
        if inline:
            return callee in self._functions and self.left[callee] <= len(flipped)
        return callee not in self._functions

    def above(self, function: str) -> int:
        """Give the set of a function and of all that it is inlined into, directly or through others."""
        known = self._above.get(function)
        if known is None:
            known = self._above[function] = self._reached(function)
        return known

    def _reached(self, function: str) -> int:
        reached, waiting = 0, [function]
        while waiting:
            name = waiting.pop()
            bit = self._bits[name]
            if not reached & bit:
                reached |= bit
                waiting.extend(self._inlined_into.get(name, ()))
        return reached

    def set_of(self, names: Iterable[str]) -> int:
        """Give the set of these functions; those that the module has no more are left out."""
        return sum({self._bits[name] for name in names if name in self._bits})

    def each_of(self, names: Iterable[str]) -> list[int]:
        """Give the set of each function alone; the empty set for those that the module has no more."""
        return [self._bits.get(name, 0) for name in names]

    def names(self, functions: int) -> list[str]:
        """Give the names in a set."""
        found = []
        while functions:
            lowest = functions & -functions
            found.append(self._names[lowest.bit_length() - 1])
            functions ^= lowest
        return found


@dataclass(frozen=True)
class Flip:
    """Turned decisions.

    Attributes:
        sites: whose decisions are turned; all to the same side.
        inline: to which side.
        affected: the set of functions that it can change (`CallGraph`).
        read: the callee, as a set, if its code goes into others: the credit depends on that code.
        ends: whether the object may lose the callee, or get it.
        group: which calls of a function it turns.
        callee: the function whose calls are turned.
        name: what tells it from the other flips of its module.

    """

    sites: tuple[Site, ...]
    inline: bool
    affected: int
    read: int
    ends: bool
    group: Group
    callee: str
    name: str

    @classmethod
    def of(cls, sites: tuple[Site, ...], graph: CallGraph, *, inline: bool, group: Group = Group.ONE) -> "Flip":
        """Turn the decisions about some calls of one function."""
        read = graph.set_of((sites[0].callee,)) if inline else 0
        ends = graph.comes_or_goes(sites, inline=inline)
        affected, first = graph.affected(sites, inline=inline), sites[0]
        which = {
            Group.ONE: first.key,
            Group.CALLER: f"*{first.callee} {first.caller}",
            Group.ALL: f"*{first.callee}",
        }[group]
        return cls(sites, inline, affected, read, ends, group, first.callee, f"{int(inline)}{which}")

    @property
    def turned(self) -> Decided:
        """The turned decisions, by site."""
        return Decided({site.key: self.inline for site in self.sites})

    def surroundings(self, sizes: Mapping[str, int]) -> int:
        """Give a number that changes, most often, where the functions that it turns have changed."""
        function = self.callee if self.group is Group.ALL else self.sites[0].caller
        return sizes.get(function, 0) + len(self.sites)


def flips_of(sites: Mapping[str, Sequence[Site]], graph: CallGraph) -> list[Flip]:
    """Give every flip that LLVM could follow."""
    return list(_flips(sites, graph))


def _flips(sites: Mapping[str, Sequence[Site]], graph: CallGraph) -> Iterator[Flip]:
    for its in sites.values():
        for site in its:
            if _can_turn(site):
                yield Flip.of((site,), graph, inline=not site.taken)
    for callee, calls in graph.calls.items():
        # Calls through pointers have no callee in common.
        for inline in (True, False) if callee else ():
            yield from _groups(
                [site for site in calls if site.taken != inline and _can_turn(site)], graph, inline=inline
            )


def _groups(turned: Sequence[Site], graph: CallGraph, *, inline: bool) -> Iterator[Flip]:
    by_caller: dict[str, list[Site]] = {}
    for site in turned:
        by_caller.setdefault(site.caller, []).append(site)
    groups = [(Group.CALLER, its) for its in by_caller.values()] if len(by_caller) > 1 else []
    for group, its in (*groups, (Group.ALL, turned)):
        if 1 < len(its) <= _MOST_TOGETHER:
            yield Flip.of(tuple(its), graph, inline=inline, group=group)


def _can_turn(site: Site) -> bool:
    # A call of a function to itself is LLVM's own; one without a cost must always or never be inlined.
    return site.caller != site.callee and not math.isnan(site.numbers[_COST]) and site.taken == site.inlined
