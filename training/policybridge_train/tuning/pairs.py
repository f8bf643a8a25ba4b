"""Two flips together: turning one decision may make it worth while to turn another, where each alone costs bytes."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from typing import Final, NamedTuple

from policybridge_train.tuning.flips import Flip
from policybridge_train.tuning.search import Tried

_MOST_BYTES: Final = 24.0
"""Flips that cost more by themselves are in no pair."""

_MOST_OF_ONE: Final = 10
"""Flips of one function that are joined, the cheapest first."""


class Pair(NamedTuple):
    """Two flips of different callees that touch one function."""

    first: Flip
    second: Flip

    @property
    def affected(self) -> int:
        """The set of functions that it can change."""
        return self.first.affected | self.second.affected

    @property
    def read(self) -> int:
        """The callees whose code goes into others."""
        return self.first.read | self.second.read

    @property
    def decisions(self) -> dict[str, bool]:
        """The turned decisions, by site."""
        return self.first.decisions | self.second.decisions

    @property
    def name(self) -> str:
        """What tells it from the other flips of its module."""
        return f"{self.first.name}&{self.second.name}"

    def surroundings(self, sizes: Mapping[str, int]) -> int:
        """See `Flip.surroundings`."""
        return self.first.surroundings(sizes) + self.second.surroundings(sizes)


def pairs_of(flips: Iterable[Flip], tried: Mapping[str, Tried]) -> Iterator[Pair]:
    """Give the pairs of those flips that were tried by themselves, the cheapest first."""
    costs: dict[str, float] = {}
    at: dict[str, list[Flip]] = {}
    for flip in flips:
        known = tried.get(flip.name)
        if known is not None and 0 <= known.credit <= _MOST_BYTES:
            costs[flip.name] = known.credit
            # A flip touches the function of its calls, and the one that is called.
            for function in {*(site.caller for site in flip.sites), flip.callee}:
                at.setdefault(function, []).append(flip)
    found: dict[str, tuple[float, Pair]] = {}
    for touching in at.values():
        cheapest = sorted(touching, key=lambda flip: (costs[flip.name], flip.name))[:_MOST_OF_ONE]
        for first, second in combinations(cheapest, 2):
            if first.callee != second.callee:
                pair = Pair(*sorted((first, second), key=lambda flip: flip.name))
                found[pair.name] = (costs[first.name] + costs[second.name], pair)
    for _, pair in sorted(found.values(), key=lambda each: (each[0], each[1].name)):
        yield pair
