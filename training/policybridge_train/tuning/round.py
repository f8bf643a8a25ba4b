"""One compile of a search: the moves that share it, and the credit of each."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import combinations
from operator import or_
from typing import Final, NamedTuple, TypeAlias

from policybridge_train.compiling.result import CompileResult
from policybridge_train.tuning.choices import Choice, Gains
from policybridge_train.tuning.flips import CallGraph, Decided, Flip, flips_of
from policybridge_train.tuning.ranking import Features, Label, Ranking, Seen, features
from policybridge_train.tuning.search import Accepted, Search, Tried

_HOPELESS: Final = 4.0
"""Flips that are predicted to cost more bytes than this are not tried: they would also make the compile larger, so that
it tells less of the accepted ones. Seen at 12 compiles a module: −8.2 % of text, and −8.1 % with all flips."""

_LEAST: Final = 4
"""Flips that a round tries at least, whatever is predicted of them …"""

_PART: Final = 40
"""… or this part of all that could be tried, if that is more: a compile of a large module takes long."""

_MOST_BYTES: Final = 24.0
"""Flips that cost more by themselves are in no pair."""

_MOST_OF_ONE: Final = 10
"""Flips of one function that are joined, the cheapest first."""


_DOUBT: Final = 3.0
"""The typical error of a predicted credit, in bytes: a flip with a predicted credit of 0 may save some."""


_TURNS: Final = 2
"""Every so many rounds, the least number of flips is tried before all choices of passes: until the model has learnt,
the best flips may be among those with bad predictions."""

Move: TypeAlias = "Flip | Pair | Choice"
"""A change of decisions. Its credit is the change of the bytes of the functions that it affects."""

_Ranked = tuple[float, Flip | Choice, Features | None]
"""A move with the bytes that it is expected to save, and a flip's features."""


class Round:
    """One compile's moves and their credit.

    Several rounds of one search may be under way at the same time. What one of them accepts, another does not know:
    moves that have met it there are not accepted. Nine of ten flips do not help, so that this is rare; rounds that left
    alone the functions in which others expect a gain found nearly nothing.

    Args:
        search: the state before.
        ranking: says which flips to try first; ``None``: no flips.
        beside: the rounds that are under way.
        gains: say which choices of passes to try first; ``None``: no choices.
        spared: the names of functions that no move may touch.

    """

    def __init__(
        self,
        search: Search,
        ranking: Ranking | None,
        beside: Sequence["Round"] = (),
        gains: Gains | None = None,
        spared: Collection[str] = (),
    ) -> None:
        self._search = search
        self._gains = gains
        self._before = search.sizes
        self._known = len(search.accepted)
        self._graph = CallGraph(search.sites, search.sizes)
        self._shared = Sharers(self._graph)
        without = {name for other in beside for name in other.names}
        flips = flips_of(search.sites, self._graph) if ranking else []
        untouched = self._graph.set_of(spared)
        flips = [flip for flip in flips if not flip.affected & untouched]
        ranked: list[_Ranked] = list(self._ranked(flips, ranking, without)) if ranking else []
        if gains:
            best = gains.best(search, self._graph, without)
            ranked += [(gain, choice, None) for gain, choice in best if choice.function not in spared]
        self.moves: list[tuple[Move, Features | None]] = list(self._chosen(ranked))
        self.moves += [(pair, None) for pair in self._joined(flips, without)]
        self.decided = _all_turned(search.pinned(), [move.turned for move, _ in self.moves])
        """What to compile with."""

    def _ranked(self, every: Sequence[Flip], ranking: Ranking, without: Collection[str]) -> Iterator[_Ranked]:
        """Give the flips that are worth a try, with the bytes that each is expected to save."""
        flips = [flip for flip in every if self._is_new(flip, without)]
        search = self._search
        seen = Seen(search.sites, {name: tried.credit for name, tried in search.tried.items()})
        rows = features(flips, self._graph, self._before, seen)
        least = max(_LEAST, len(rows) // _PART)
        for place, (credit, n) in enumerate(sorted(zip(ranking.predict(rows), range(len(rows)), strict=True))):
            if credit > _HOPELESS and place >= least:
                return
            gain = max(-credit, 0) + _DOUBT * math.log1p(math.exp(-abs(credit) / _DOUBT))
            yield math.inf if place < least and search.spent % _TURNS == 0 else gain, flips[n], rows[n]

    def _chosen(self, ranked: Sequence[_Ranked]) -> Iterator[tuple[Move, Features | None]]:
        """Give those that fit into one compile, the greatest expected gain first."""
        for _, move, row in sorted(ranked, key=lambda each: -each[0]):
            if self._shared.take_choice(move) if isinstance(move, Choice) else self._shared.take(move):
                yield move, row

    def _joined(self, flips: Sequence[Flip], without: Collection[str]) -> Iterator["Pair"]:
        """Fill the compile with pairs: where no flip by itself is left to try, two together may help."""
        for pair in pairs_of(flips, self._search.tried):
            if self._is_new(pair, without) and self._shared.take(*pair):
                yield pair

    def _is_new(self, flip: "Flip | Pair", without: Collection[str]) -> bool:
        tried = self._search.tried.get(flip.name)
        return flip.name not in without and (tried is None or tried.surroundings != flip.surroundings(self._before))

    @property
    def names(self) -> set[str]:
        """The names of its moves."""
        return {move.name for move, _ in self.moves}

    def settle(self, measured: CompileResult) -> list[Label]:
        """Accept the moves whose functions became smaller; return the credit of each flip."""
        search, seen = self._search, measured.costs
        search.note(measured, self.decided.passes)
        met = self._graph.set_of([name for move in search.accepted[self._known :] for name in move.functions])
        changed: set[str] = set()
        found: list[Label] = []
        for move, row in self.moves:
            names = self._graph.names(move.affected)
            credit = search.credit(names, self._before, seen)
            if row is not None:
                found.append((row, credit))
            if self._gains and isinstance(move, Choice):
                self._gains.add(move, self._before[move.function], credit)
            if credit < 0 and met & (move.affected | move.read):
                continue
            search.tried[move.name] = Tried(move.surroundings(self._before), credit)
            if credit < 0:
                search.accept(Accepted(move.turned, names))
                changed.update(names)
        search.update(measured, changed)
        search.idle = 0 if changed else search.idle + 1
        return found

    def fail(self) -> None:
        """Count a compile from which nothing was learnt, because the compiler failed; its moves are not tried again."""
        self._search.spent += 1
        self._search.idle += 1
        for move, _ in self.moves:
            self._search.tried[move.name] = Tried(move.surroundings(self._before), math.nan)


def _all_turned(decided: Decided, moves: Sequence[Decided]) -> Decided:
    """Give decisions after moves, of which each touches other functions."""
    inlining = {site: inline for move in moves for site, inline in move.inlining.items()}
    passes = {function: its for move in moves for function, its in move.passes.items()}
    return decided.turned(Decided(inlining, passes))


class Sharers:
    """The moves that share a compile: none of them changes what another one changes or reads.

    A choice of passes changes its function after all inlining, so that the function may be inlined elsewhere.
    """

    def __init__(self, graph: CallGraph) -> None:
        self._changed = self._read = self._chosen = 0
        self._left = Counter(graph.left)
        self._turned: Counter[str] = Counter()
        self._ended: set[str] = set()

    def take(self, *flips: Flip) -> bool:
        """Let flips of different callees share the compile as one, if they can."""
        affected = reduce(or_, (flip.affected for flip in flips))
        read = reduce(or_, (flip.read for flip in flips))
        taken = self._changed | self._read | self._chosen
        if affected & taken or read & self._changed or not all(map(self._has_room, flips)):
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

    def take_choice(self, choice: Choice) -> bool:
        """Let a choice of passes share the compile, if it can."""
        if choice.affected & (self._changed | self._chosen):
            return False
        self._chosen |= choice.affected
        return True

    def _has_room(self, flip: Flip) -> bool:
        """Tell whether the callee comes or goes by this flip alone, or not at all."""
        if flip.ends:
            return not self._turned[flip.callee]
        return flip.callee not in self._ended and (not flip.inline or self._left[flip.callee] > len(flip.sites))


class Pair(NamedTuple):
    """Two flips of different callees that touch one function: each alone costs bytes, and both may save some."""

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
    def turned(self) -> Decided:
        """The turned decisions, by site."""
        return self.first.turned.turned(self.second.turned)

    @property
    def name(self) -> str:
        """What tells it from the other flips of its module."""
        return f"{self.first.name}&{self.second.name}"

    def surroundings(self, sizes: Mapping[str, int]) -> int:
        """See `Flip.surroundings`."""
        return self.first.surroundings(sizes) + self.second.surroundings(sizes)


def pairs_of(flips: Iterable[Flip], tried: Mapping[str, Tried]) -> Iterator["Pair"]:
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
