"""Credit of inlining decisions: the bytes of the functions that each of them can change."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from policybridge_train.tasks.inlined import CallSite, Inlined


@dataclass(frozen=True)
class Sizes:
    """The sizes of one compile.

    Attributes:
        text: bytes of the object that are loaded and not written.
        functions: bytes of each function, its part of the unwind tables among them.
        inlined: the functions that took each function in.

    """

    text: int
    functions: Mapping[str, int]
    inlined: Inlined

    def of(self, functions: Iterable[str]) -> float:
        """Give the bytes of those of the functions that the object has."""
        return float(sum(self.functions[name] for name in functions if name in self.functions))


def credit(default: Sizes, made: Sizes, call: CallSite) -> float:
    """Give the bytes that a decision's functions have saved.

    They are the caller, all that the caller was inlined into in either compile, and the callee. 0 where the remarks do
    not name them.
    """
    if not call.caller:
        return 0.0
    functions = default.inlined.above(call.caller) | made.inlined.above(call.caller) | {call.callee}
    return default.of(functions) - made.of(functions)
