"""What a search tries: turning the decisions about one call, or about several of one function."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from policybridge_train.compiling.result import NUMBERS, Site
from policybridge_train.tuning.graph import CallGraph

_COST: Final = NUMBERS.index("cost")
_THRESHOLD: Final = NUMBERS.index("threshold")
_MOST_TOGETHER: Final = 64
"""Calls of one function that are turned together."""


class Group(IntEnum):
    """Which calls of one function are turned: one, all of one caller, or all; those that can be turned."""

    ONE = 0
    CALLER = 1
    ALL = 2


@dataclass(frozen=True)
class Flip:
    """Turned decisions.

    Attributes:
        sites: whose decisions are turned; all to the same side.
        inline: to which side.
        affected: the set of functions that it can change (`CallGraph`).
        read: the callee, as a set, where its code goes into others: what it comes to depends on that code.
        ends: whether the object may lose the callee, or get it.
        group: which calls of a function it turns.

    """

    sites: tuple[Site, ...]
    inline: bool
    affected: int
    read: int
    ends: bool
    group: Group = Group.ONE

    @classmethod
    def of(cls, sites: tuple[Site, ...], graph: CallGraph, *, inline: bool, group: Group = Group.ONE) -> "Flip":
        """Turn the decisions about some calls of one function."""
        read = graph.set_of((sites[0].callee,)) if inline else 0
        ends = graph.comes_or_goes(sites, inline=inline)
        return cls(sites, inline, graph.affected(sites, inline=inline), read, ends, group)

    @property
    def callee(self) -> str:
        """The function whose calls are turned."""
        return self.sites[0].callee

    @property
    def decisions(self) -> dict[str, bool]:
        """The turned decisions, by site."""
        return {site.key: self.inline for site in self.sites}

    @property
    def name(self) -> str:
        """What tells it from the other flips of its module."""
        first = self.sites[0]
        match self.group:
            case Group.ONE:
                return f"{int(self.inline)}{first.key}"
            case Group.CALLER:
                return f"{int(self.inline)}*{first.callee} {first.caller}"
            case Group.ALL:
                return f"{int(self.inline)}*{first.callee}"

    def surroundings(self, sizes: Mapping[str, int]) -> int:
        """Give a number that changes, most often, where the functions that it turns have changed."""
        function = self.callee if self.group is Group.ALL else self.sites[0].caller
        return sizes.get(function, 0) + len(self.sites)


def flips_of(sites: Mapping[str, Sequence[Site]], graph: CallGraph) -> Iterator[Flip]:
    """Give every flip that LLVM could follow."""
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


@dataclass
class _Sum:
    total: float = 0.0
    count: int = 0

    def add(self, credit: float) -> None:
        self.total += credit
        self.count += 1

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else math.nan


class Seen:
    """What the flips came to that were tried so far: one call of a function tells much of the others.

    Args:
        sites: by caller, the calls that the module has now.
        tried: the credits of the tried flips, by name.

    """

    def __init__(self, sites: Mapping[str, Sequence[Site]], tried: Mapping[str, float]) -> None:
        self.credits = tried
        self.callees: defaultdict[tuple[bool, str], _Sum] = defaultdict(_Sum)
        self._callers: defaultdict[tuple[bool, str], _Sum] = defaultdict(_Sum)
        for its in sites.values():
            for site in its:
                for inline in (False, True):
                    credit = tried.get(f"{int(inline)}{site.key}")
                    if credit is not None and math.isfinite(credit):
                        self.callees[inline, site.callee].add(credit)
                        self._callers[inline, site.caller].add(credit)

    def mean_of_callee(self, flip: Flip) -> float:
        """Give the mean credit of the flips of this callee to the same side; not a number where there was none."""
        return self.callees[flip.inline, flip.callee].mean

    def mean_of_caller(self, flip: Flip) -> float:
        """Give the mean credit of the flips in this caller to the same side; not a number where there was none."""
        return self._callers[flip.inline, flip.sites[0].caller].mean


FEATURES: Final = (
    "inline",
    "group",
    "sites",
    "affected",
    "left",
    "calls",
    "callee_bytes",
    "caller_bytes",
    "default",
    "seen",
    "seen_of_callee",
    "count_of_callee",
    "seen_of_caller",
    "margin",
    *NUMBERS,
)
"""The columns of `features`."""


def features(flip: Flip, graph: CallGraph, sizes: Mapping[str, int], seen: Seen) -> tuple[float, ...]:
    """Describe a flip by numbers, for a model that says which flips are worth a compile."""
    site = flip.sites[0]
    left = graph.left[site.callee]
    count = len(flip.sites)
    numbers = site.numbers
    if count > 1:
        numbers = tuple(sum(each) / count for each in zip(*(one.numbers for one in flip.sites), strict=True))
    return (
        float(flip.inline),
        float(flip.group),
        float(count),
        float(flip.affected.bit_count()),
        float(left - count if flip.inline else left + count),
        float(len(graph.calls[site.callee])),
        float(sizes.get(site.callee, 0)),
        float(sizes.get(site.caller, 0)),
        float(site.default),
        seen.credits.get(flip.name, math.nan),
        seen.mean_of_callee(flip),
        float(seen.callees[flip.inline, flip.callee].count),
        seen.mean_of_caller(flip),
        numbers[_COST] - numbers[_THRESHOLD],
        *numbers,
    )
