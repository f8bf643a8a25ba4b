"""What inlining makes of a call: the functions that it can change."""

from collections.abc import Iterable
from typing import NamedTuple


class CallSite(NamedTuple):
    """A call that was asked about; the names are empty where LLVM's remarks do not tell them."""

    caller: str
    callee: str
    inlined: bool


class Inlined:
    """The inlined calls of one compile."""

    def __init__(self, calls: Iterable[CallSite]) -> None:
        self._into: dict[str, set[str]] = {}
        for call in calls:
            if call.inlined:
                self._into.setdefault(call.callee, set()).add(call.caller)
        self._above: dict[str, frozenset[str]] = {}

    def above(self, function: str) -> frozenset[str]:
        """Give a function and all that it was inlined into, directly or through others."""
        known = self._above.get(function)
        if known is None:
            reached, waiting = set[str](), [function]
            while waiting:
                name = waiting.pop()
                if name not in reached:
                    reached.add(name)
                    waiting.extend(self._into.get(name, ()))
            known = self._above[function] = frozenset(reached)
        return known
