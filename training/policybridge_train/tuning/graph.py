"""Which functions a decision can change: the caller, what the caller is inlined into, and a callee that comes or goes.

Sets of functions are the bits of integers, because a search tests thousands of them for overlap in each round.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from policybridge_train.compiling.result import Site


class CallGraph:
    """The calls of a module and what was inlined where, in one compile.

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

    def names(self, functions: int) -> Iterator[str]:
        """Give the names in a set."""
        while functions:
            lowest = functions & -functions
            yield self._names[lowest.bit_length() - 1]
            functions ^= lowest
