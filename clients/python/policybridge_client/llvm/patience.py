"""Bounding all waits of one compilation for the server together."""

from typing import Final

from policybridge_core.errors import DeadlineError

_TIMEOUTS: Final = 3.0
_EACH: Final = 0.1


class Patience:
    """Bounds all waits of a compilation: three time-outs, and a tenth of a time-out more for each decision.

    Without it, a server that answers each time just before the time-out would hold a compilation with thousands of
    decisions for days.

    Args:
        timeout: limit of one wait, in seconds.

    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._decisions = 0
        self._nanoseconds = 0

    def count(self, nanoseconds: int) -> None:
        """Count a decision that took this long."""
        self._decisions += 1
        self._nanoseconds += nanoseconds

    def check(self) -> None:
        """Raise `DeadlineError` if the waits took too long together."""
        allowed = self._timeout * (_TIMEOUTS + _EACH * self._decisions)
        if self._nanoseconds > allowed * 1e9:
            raise DeadlineError(
                f"the server took {self._nanoseconds / 1e9:.3g} s for {self._decisions} decisions, "
                f"and has {allowed:.3g} s for that number"
            )
