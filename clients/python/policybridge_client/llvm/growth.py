"""Bounding how much a policy can make a module grow."""

from typing import Final

from policybridge_client.llvm.inliner import INLINING_DEFAULT
from policybridge_serdes import Values

_COST: Final = 5
"""LLVM's cost of an instruction (llvm/include/llvm/Analysis/InlineCost.h)."""

_INSTRUCTIONS: Final = 50
"""Instructions of a function before inlining, on average."""

_WIDTH: Final = 8


class Growth:
    """Bounds how much a policy can make a module grow. Without it, a policy that always inlines takes minutes a file.

    It adds up the feature ``cost_estimate``, 5 for each instruction, of the calls that the policy inlines and LLVM
    would not. So a policy that follows LLVM is never limited. LLVM does not send the module's size; it is estimated
    from the number of functions.

    Args:
        limit: the factor of the module's size that may be added.

    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self.begin()

    def begin(self) -> None:
        """Start from 0, for a new module."""
        self._added = 0.0
        self._allowed = 0.0

    @property
    def reached(self) -> bool:
        """Whether the limit is reached; from then on LLVM decides."""
        return self._added > self._allowed

    def count(self, observation: Values, answer: bytes) -> None:
        """Count a decision. Without one of the needed features there is no limit."""
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
    # Read the bytes: a hostile compiler may declare a float and send NaN.
    return int.from_bytes(feature.tobytes()[:_WIDTH], "little", signed=True)
