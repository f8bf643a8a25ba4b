"""Bounding how much a policy can make a module grow."""

from typing import Final

from policybridge_client.llvm.tasks import INLINING_DEFAULT
from policybridge_serdes import Values

_COST: Final = 5
"""LLVM's cost of an instruction (llvm/include/llvm/Analysis/InlineCost.h)."""

_INSTRUCTIONS: Final = 50
"""Instructions of a function before inlining, on average."""

_WIDTH: Final = 8


class Growth:
    """Bounds how much a policy can make a module grow. Without it, one that always inlines takes minutes for a file.

    Counted is the feature ``cost_estimate`` of the calls that the policy inlines and LLVM itself would not, so a policy
    that follows LLVM is never limited. It is 5 for each instruction that the call adds. LLVM does not send the size of
    the module; it is estimated from the number of its functions.

    Args:
        limit: the factor of the module's size that may be added.

    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self.begin()

    def begin(self) -> None:
        """Start from 0: a module begins."""
        self._added = 0.0
        self._allowed = 0.0

    @property
    def reached(self) -> bool:
        """Whether the limit is reached: from here on LLVM's own decisions stand in."""
        return self._added > self._allowed

    def count(self, observation: Values, answer: bytes) -> None:
        """Count a decision. Where a feature is missing that the growth is computed from, there is no limit."""
        names = observation.dtype.names or ()
        needed = (INLINING_DEFAULT.name, "cost_estimate", "node_count")
        if answer.count(0) == len(answer) or not all(name in names for name in needed):
            return
        default, cost, functions = (_integer(observation[name]) for name in needed)
        if default:
            return
        if not self._added:
            self._allowed = self._limit * _COST * _INSTRUCTIONS * functions
        self._added += max(cost, _COST)


def _integer(feature: Values) -> int:
    # By its bytes, as LLVM wrote them: a hostile compiler may call it a float, and send no number.
    return int.from_bytes(feature.tobytes()[:_WIDTH], "little", signed=True)
