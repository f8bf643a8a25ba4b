"""One compile of a search: which flips share it, and what each of them came to."""

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from functools import reduce
from operator import or_
from typing import Final

from policybridge_train.compiling.result import CompileResult
from policybridge_train.tuning.flips import Flip, Seen, features, flips_of
from policybridge_train.tuning.graph import CallGraph
from policybridge_train.tuning.pairs import Pair, pairs_of
from policybridge_train.tuning.ranking import Features, Label, Ranking
from policybridge_train.tuning.search import Accepted, Search, Tried

_HOPELESS: Final = 4.0
"""Flips that are predicted to cost more bytes than this are not tried: they would also make the compile larger, so that
it tells less of the accepted ones. Seen at 12 compiles a module: −8.2 % of text, and −8.1 % with all flips."""

_LEAST: Final = 4
"""Flips that a round tries at least, whatever is predicted of them …"""

_PART: Final = 40
"""… or this part of all that could be tried, if that is more: a compile of a large module takes long."""


class Round:
    """One compile's flips, and what they came to.

    Several rounds of one search may be under way at the same time. What one of them accepts, another does not know:
    flips that have met it there are not accepted. Nine of ten flips do not help, so that this is rare; rounds that left
    alone the functions in which others expect a gain found nearly nothing.

    Args:
        search: what is known before.
        ranking: says which flips to try first.
        beside: the rounds that are under way.

    """

    def __init__(self, search: Search, ranking: Ranking, beside: Sequence["Round"] = ()) -> None:
        self._search = search
        self._before = search.sizes
        self._known = len(search.accepted)
        self._graph = CallGraph(search.sites, search.sizes)
        self._shared = Sharers(self._graph)
        without = {name for other in beside for name in other.names}
        flips = list(flips_of(search.sites, self._graph))
        self.flips: list[tuple[Flip | Pair, Features | None]] = list(self._chosen(flips, ranking, without))
        self.flips += [(pair, None) for pair in self._joined(flips, without)]
        self.decisions = search.pinned()
        """What to compile with."""
        for flip, _ in self.flips:
            self.decisions |= flip.decisions

    def _chosen(
        self, every: Sequence[Flip], ranking: Ranking, without: Collection[str]
    ) -> Iterator[tuple[Flip, Features]]:
        flips = [flip for flip in every if self._is_new(flip, without)]
        search = self._search
        seen = Seen(search.sites, {name: tried.credit for name, tried in search.tried.items()})
        rows = [features(flip, self._graph, self._before, seen) for flip in flips]
        count, least = 0, max(_LEAST, len(rows) // _PART)
        for expected, n in sorted(zip(ranking.predict(rows), range(len(rows)), strict=True)):
            if expected > _HOPELESS and count >= least:
                return
            if self._shared.take(flips[n]):
                count += 1
                yield flips[n], rows[n]

    def _joined(self, flips: Sequence[Flip], without: Collection[str]) -> Iterator[Pair]:
        """Fill the compile with pairs: where no flip by itself is left to try, two together may help."""
        for pair in pairs_of(flips, self._search.tried):
            if self._is_new(pair, without) and self._shared.take(*pair):
                yield pair

    def _is_new(self, flip: Flip | Pair, without: Collection[str]) -> bool:
        tried = self._search.tried.get(flip.name)
        return flip.name not in without and (tried is None or tried.surroundings != flip.surroundings(self._before))

    @property
    def names(self) -> set[str]:
        """The names of its flips."""
        return {flip.name for flip, _ in self.flips}

    def settle(self, measured: CompileResult) -> list[Label]:
        """Accept the flips whose functions became smaller; return what the credit of each was."""
        search, seen = self._search, measured.costs
        search.note(measured)
        met = self._graph.set_of(name for flip in search.accepted[self._known :] for name in flip.functions)
        changed: set[str] = set()
        found: list[Label] = []
        for flip, row in self.flips:
            names = list(self._graph.names(flip.affected))
            credit = search.cost(seen, names) - search.cost(self._before, names)
            if row is not None:
                found.append((row, credit))
            if credit < 0 and met & (flip.affected | flip.read):
                continue
            search.tried[flip.name] = Tried(flip.surroundings(self._before), credit)
            if credit < 0:
                search.accept(Accepted(flip.decisions, names))
                changed.update(names)
        search.update(measured, changed)
        search.idle = 0 if changed else search.idle + 1
        return found

    def fail(self) -> None:
        """Count a compile from which nothing was learnt, because the compiler failed; its flips are not tried again."""
        self._search.spent += 1
        self._search.idle += 1
        for flip, _ in self.flips:
            self._search.tried[flip.name] = Tried(flip.surroundings(self._before), math.nan)


class Sharers:
    """The flips that share a compile: none of them changes what another one changes or reads."""

    def __init__(self, graph: CallGraph) -> None:
        self._changed = self._read = 0
        self._left = Counter(graph.left)
        self._turned: Counter[str] = Counter()
        self._ended: set[str] = set()

    def take(self, *flips: Flip) -> bool:
        """Let flips of different callees share the compile as one, if they can."""
        affected = reduce(or_, (flip.affected for flip in flips))
        read = reduce(or_, (flip.read for flip in flips))
        if affected & (self._changed | self._read) or read & self._changed or not all(map(self._has_room, flips)):
            return False
        self._changed |= affected
        self._read |= read
        for flip in flips:
            self._turned[flip.callee] += 1
            if flip.ends:
                self._ended.add(flip.callee)
            elif flip.inline:
                self._left[flip.callee] -= len(flip.sites)
        return True

    def _has_room(self, flip: Flip) -> bool:
        """Tell whether the callee comes or goes by this flip alone, or not at all."""
        if flip.ends:
            return not self._turned[flip.callee]
        return flip.callee not in self._ended and (not flip.inline or self._left[flip.callee] > len(flip.sites))
