"""The pace of a model: whether it may run on the loop thread, by the measured time of its batches."""

import time
from typing import Final

INLINE_SECONDS: Final = 2e-3
"""A model that takes longer for one run is slow, because the loop thread serves all clients."""

_LOOP_SECONDS: Final = 20e-6
"""Seconds that the loop needs for one decision. A batch may take as long as the loop takes for its decisions."""

_TOLERATED_SECONDS: Final = 0.04
"""By which the batches of a model may be too slow in all before it is moved to a worker …"""

_TOLERATED_SHARE: Final = 0.05
"""… less this share of the time that passes: a process that is kept from its core for a moment is no slow model."""

_FIRST_RUNS: Final = 32
_MOST_RUNS: Final = 1 << 16


class Pace:
    """Counts slow and fast batches of one model. For the loop thread.

    A slow model leaves the loop thread, and returns after a number of fast batches in a row, which doubles
    each time, so that a model that is slow now and then stays in its worker.
    """

    def __init__(self) -> None:
        self._late = self._since = 0.0
        self._fast = 0
        self._needed = _FIRST_RUNS

    def slow(self, seconds: float, runs: int, decisions: int) -> bool:
        """Record a slow batch on the loop thread; return whether the model must leave it."""
        now = time.monotonic()
        self._late = max(0.0, self._late - _TOLERATED_SHARE * (now - self._since))
        self._late += max(0.0, seconds - _allowed(runs, decisions))
        self._since = now
        if self._late <= _TOLERATED_SECONDS:
            return False
        self._late, self._fast = 0.0, 0
        return True

    def fast(self, seconds: float, runs: int, decisions: int) -> bool:
        """Record a batch in a worker; return whether the model is now fast enough for the loop thread."""
        self._fast = self._fast + 1 if seconds <= _allowed(runs, decisions) else 0
        if self._fast < self._needed:
            return False
        self._fast, self._needed = 0, min(2 * self._needed, _MOST_RUNS)
        return True


def _allowed(runs: int, decisions: int) -> float:
    return INLINE_SECONDS * runs + _LOOP_SECONDS * decisions
