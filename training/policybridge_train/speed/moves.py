"""The moves that one run of a program tries in one module.

A move changes a few functions of its module, and costs or saves what these take by themselves. Other modules' functions
are never inlined here, so that many moves share a run, each with its own credit.
"""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from policybridge_train.speed.calls import CallFlip, FlipGains, Move
from policybridge_train.speed.parts import Part
from policybridge_train.tasks.callgrind import Counted
from policybridge_train.tuning.choices import Choice, Gains
from policybridge_train.tuning.flips import CallGraph, Decided, Flip, flips_of
from policybridge_train.tuning.round import Sharers
from policybridge_train.tuning.search import Search

FIRST: Final = "set ext-tsp & skip loop-reduce & skip early-machinelicm"
"""Choices that make most functions smaller, and many faster."""

LISTED: Final[Mapping[str, float]] = {
    "skip early-machinelicm": 0.0060,
    "skip machine-cse": 0.0050,
    "set ext-tsp": 0.0030,
    "skip LoopUnrollPass": 0.0030,
    "skip LICMPass": 0.0028,
    "skip loop-reduce": 0.0026,
    "skip codegenprepare": 0.0025,
    "skip x86-cmov-conversion": 0.0024,
    "skip machine-sink": 0.0022,
    "skip SimplifyCFGPass": 0.0020,
    "skip LoopVectorizePass": 0.0019,
    "skip SLPVectorizerPass": 0.0018,
    "add gvn@early": 0.0017,
    "skip peephole-opt": 0.0016,
    "add loop-mssa(licm)@last": 0.0015,
    "skip InstCombinePass": 0.0014,
    "skip machinelicm": 0.0013,
    "skip x86-optimize-leas": 0.0012,
    "add jump-threading@early": 0.0011,
    "add loop(loop-reduce)@last": 0.0010,
    "skip LoopRotatePass": 0.0010,
    "skip machine-scheduler": 0.0009,
    "skip x86-fixup-leas": 0.0008,
    "set split-conditions": 0.0008,
    "skip block-placement": 0.0008,
    "skip shrink-wrap": 0.0008,
    "set list-burr": 0.0007,
    "set reverse-assignment": 0.0007,
    "skip tailduplication": 0.0007,
    "skip early-tailduplication": 0.0007,
    "skip branch-folder": 0.0006,
    "skip early-ifcvt": 0.0006,
    "set spare-callee-saved": 0.0006,
    "skip VectorCombinePass": 0.0005,
    "skip consthoist": 0.0005,
    "skip twoaddressinstruction": 0.0005,
    "skip SROAPass": 0.0004,
    "add early-cse<memssa>@last": 0.0004,
    "add instcombine@last": 0.0004,
    "add dse@last": 0.0004,
    "add constraint-elimination@early": 0.0004,
    "add correlated-propagation@early": 0.0004,
    "add slsr@last": 0.0003,
    "add newgvn@early": 0.0003,
    "add simplifycfg<switch-to-lookup>@last": 0.0003,
    "add sink@last": 0.0003,
}
"""Choices to try, and the share of a function's cycles that each is assumed to save, before any was tried."""


class Trying:
    """Finds the next moves of modules.

    Args:
        gains: say which choices of passes to try first.
        flips: say which decisions about calls to.
        inline: whether decisions about calls are tried.
        passes: whether choices of passes are.

    """

    def __init__(self, gains: Gains, flips: FlipGains, *, inline: bool, passes: bool) -> None:
        self._gains = gains
        self._flips = flips
        self._inline = inline
        self._passes = passes

    def first(self, part: Part, spared: Collection[str], taken: set[str]) -> list[Move]:
        """Give `FIRST` for all functions of a module but those spared: choices for one do not change another."""
        if not self._passes:
            return []
        graph = CallGraph(part.search.sites, part.search.sizes)
        untouched = graph.set_of(spared) | graph.set_of(part.owned.elsewhere)
        alone = zip(part.search.sizes, graph.each_of(part.search.sizes), strict=True)
        found = [(0.0, Choice(name, FIRST, its)) for name, its in alone if not its & untouched]
        return list(_sharing(found, graph, part.owned.shared, taken))

    def moves(
        self, part: Part, hot: Collection[str], spared: Collection[str], counted: Counted, taken: set[str]
    ) -> list[Move]:
        """Give moves of a module that share a compile, those that are expected to save most first.

        Args:
            part: the module.
            hot: the functions that cost much.
            spared: the functions that no move may touch.
            counted: the last run without moves.
            taken: the functions of several modules that the moves of other modules change; gets those of these moves.

        """
        search, elsewhere = part.search, part.owned.elsewhere
        graph = CallGraph(search.sites, search.sizes)
        heat, untouched = graph.set_of(hot), graph.set_of(spared)
        found: list[tuple[float, Move]] = []
        if self._inline:
            flips = (CallFlip.counted(flip, search, graph, counted) for flip in flips_of(search.sites, graph))
            found += [
                (self._flips.expected(flip, search, graph), flip)
                for flip in flips
                if flip.affected & heat and not flip.affected & untouched and _is_new(flip, search)
                if not elsewhere.issuperset(site.caller for site in flip.sites)
            ]
        if self._passes:
            best = self._gains.best(search, graph, ())
            own = heat & ~untouched & ~graph.set_of(elsewhere)
            found += [(gain, choice) for gain, choice in best if choice.affected & own]
        return list(_sharing(found, graph, part.owned.shared, taken))


def _sharing(
    found: Sequence[tuple[float, Move]], graph: CallGraph, shared: Collection[str], taken: set[str]
) -> Iterator[Move]:
    sharers = Sharers(graph)
    for _, move in sorted(found, key=lambda each: (-each[0], each[1].name)):
        names = {*graph.names(move.affected)}.intersection(shared)
        if names & taken:
            continue
        if sharers.take_choice(move) if isinstance(move, Choice) else sharers.take(move):
            taken |= names
            yield move


def _is_new(flip: Flip, search: Search) -> bool:
    tried = search.tried.get(flip.name)
    return tried is None or (not math.isnan(tried.credit) and tried.surroundings != flip.surroundings(search.sizes))


def turned(decided: Decided, moves: Sequence[Move]) -> Decided:
    """Give decisions after moves, of which each touches other functions."""
    inlining = {site: inline for move in moves for site, inline in move.turned.inlining.items()}
    passes = {function: its for move in moves for function, its in move.turned.passes.items()}
    return decided.turned(Decided(inlining, passes))
