"""Decisions about calls as moves of a search for speed, and the cycles that each is expected to save."""

from dataclasses import dataclass
from typing import Final, TypeAlias

from policybridge_train.tasks.callgrind import Counted
from policybridge_train.tuning.choices import Choice
from policybridge_train.tuning.flips import CallGraph, Flip
from policybridge_train.tuning.search import Search

_CALL: Final = 8
"""Cycles of a call without its callee, about: call, return, saved registers, arguments."""

_UNKNOWN: Final = 0.001
"""The share of its functions' cycles that a flip is assumed to save beside that, before any was tried."""

_WEIGHT: Final = 0.1
"""That share weighs as much as trials on functions with this share of the program's cycles."""


@dataclass(frozen=True)
class CallFlip(Flip):
    """Turned decisions, and the cycles that the calls themselves cost that these take away."""

    calls: float

    @classmethod
    def counted(cls, flip: Flip, search: Search, graph: CallGraph, counted: Counted) -> "CallFlip":
        """Add the cycles of the calls in the last run.

        The callee belongs to what it affects: the callee runs less often, or more often, and so its cycles change. So
        do functions that the object lacks while they are inlined into the callee: where it is inlined itself, LLVM
        decides about their calls anew.
        """
        affected = flip.affected | graph.set_of(_hidden(flip.callee, search))
        calls = _CALL * _taken_away(flip, graph, counted) if flip.inline else 0.0
        return cls(**{**vars(flip), "affected": affected}, calls=calls)


Move: TypeAlias = "CallFlip | Choice"


class FlipGains:
    """The share of their functions' cycles that flips save beside their calls, learnt from those tried, by side.

    Args:
        cycles: of the whole program.

    """

    def __init__(self, cycles: int) -> None:
        weight = _WEIGHT * max(1, cycles)
        self._saved = dict.fromkeys((False, True), _UNKNOWN * weight)
        self._cycles = dict.fromkeys((False, True), weight)

    def add(self, flip: CallFlip, cost: float, credit: float) -> None:
        """Learn from a tried flip; ``cost`` is the cycles of its functions before, ``credit`` their change."""
        self._saved[flip.inline] += max(0.0, -credit - flip.calls)
        self._cycles[flip.inline] += cost

    def expected(self, flip: CallFlip, search: Search, graph: CallGraph) -> float:
        """Give the cycles that a flip is expected to save."""
        share = self._saved[flip.inline] / self._cycles[flip.inline]
        return flip.calls + share * search.cost(search.sizes, graph.names(flip.affected))


def _hidden(callee: str, search: Search) -> set[str]:
    """Give a function, and those inlined into it that the object lacks."""
    found, waiting = {callee}, [callee]
    while waiting:
        sites = search.sites.get(waiting.pop(), ())
        new = {site.callee for site in sites if site.inlined and site.callee not in search.sizes} - found
        found |= new
        waiting += new
    return found


def _taken_away(flip: Flip, graph: CallGraph, counted: Counted) -> float:
    pairs = {(name, flip.callee) for site in flip.sites for name in graph.names(graph.above(site.caller))}
    called = sum(counted.calls.get(pair, 0) for pair in pairs)
    there = sum(1 for site in graph.calls[flip.callee] if not site.inlined)
    return called * min(1.0, len(flip.sites) / max(1, there))
