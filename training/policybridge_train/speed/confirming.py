"""Whether a program is faster than another: processor time of runs in pairs, with an interval.

An estimate by counts misses what processors do beside it, so that a version is only kept if its time agrees.
"""

import math
from collections.abc import Callable, Sequence
from statistics import fmean, stdev
from typing import Final

import msgspec

from policybridge_core.errors import PreconditionError

LEAST_PAIRS: Final = 5
"""Fewer tell nothing."""

_NORMAL: Final = 1.959964
"""The quantile of the normal distribution for an interval of 95 %."""

_LEAST_SECONDS: Final = 0.15
"""Processor time of a sample, at least: the fastest of its runs counts, because other processes only ever add time …"""

_LEAST_RUNS: Final = 3
"""… with these runs at least …"""

_MOST_RUNS: Final = 50
"""… and at most."""


class Times(msgspec.Struct, frozen=True):
    """Processor time of a version, as a factor of the other's, and its interval of 95 %.

    Attributes:
        factor: the geometric mean over pairs.
        low: the interval's lower end.
        high: its upper end.
        pairs: how many pairs of samples.
        seconds: of a run of the other version, on average.

    """

    factor: float
    low: float
    high: float
    pairs: int
    seconds: float

    @property
    def is_slower(self) -> bool:
        """Whether the version is confirmed to be slower."""
        return self.low > 1

    @property
    def is_faster(self) -> bool:
        """Whether it is confirmed to be faster."""
        return self.high < 1

    @property
    def verdict(self) -> str:
        """The same in words."""
        return "confirmed faster" if self.is_faster else "confirmed slower" if self.is_slower else "no difference shown"


def compare(before: Callable[[int], float], after: Callable[[int], float], pairs: int) -> Times:
    """Time two versions in turn; which of a pair runs first changes from one to the next.

    Args:
        before: runs the one version for the pair of a number, and gives its processor time in seconds.
        after: runs the other.
        pairs: of samples, at least `LEAST_PAIRS`.

    Raises:
        PreconditionError: a run takes no measurable time.

    """
    # The first runs are slower, because nothing is cached yet.
    first = min(before(0), before(0))
    after(0)
    runs = max(_LEAST_RUNS, min(_MOST_RUNS, math.ceil(_LEAST_SECONDS / max(first, 1e-9))))
    times = []
    for number in range(pairs):
        order = (before, after) if number % 2 == 0 else (after, before)
        took = {each: min(each(number) for _ in range(runs)) for each in order}
        times.append((took[before], took[after]))
    if not all(old > 0 and new > 0 for old, new in times):
        raise PreconditionError("--run takes no measurable time: give an input with which it works longer")
    return interval(times)


def interval(times: Sequence[tuple[float, float]]) -> Times:
    """Give the factor of pairs of times, all above 0, and the interval of Student's distribution for its logarithm."""
    logs = [math.log(new / old) for old, new in times]
    mean, wide = fmean(logs), _quantile(len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    factor, low, high = (math.exp(each) for each in (mean, mean - wide, mean + wide))
    return Times(factor, low, high, len(times), fmean(old for old, _ in times))


def _quantile(freedom: int) -> float:
    """Give Student's quantile, within 1 % from 4 degrees of freedom on (Abramowitz and Stegun, 26.7.5)."""
    z = _NORMAL
    first = (z**3 + z) / 4
    second = (5 * z**5 + 16 * z**3 + 3 * z) / 96
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + first / freedom + second / freedom**2 + third / freedom**3
