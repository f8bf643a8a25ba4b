"""The draw of a session that explores: from the scores of the choices to one of them, and its log-probability.

The server and every client draw by the same steps, those of docs/forms.md, so the same scores give the same bits; in
C++ by clients/cpp/src/form_drawing.cpp.
"""

import math
from bisect import bisect_right
from functools import lru_cache
from itertools import accumulate
from typing import Final

import numpy as np
import numpy.typing as npt

from policybridge_core.session import Exploration
from policybridge_forms import arithmetic

_MASK: Final = (1 << 64) - 1
_STEP: Final = 256.0
"""Steps of a difference of two scores in a unit. Models that are evaluated elsewhere differ in their last bits."""

_MOST: Final = 16384.0
"""A choice that is so many steps below the best is never drawn by its score."""

_LN2_HIGH: Final = 0.693147180369123816490
_LN2_LOW: Final = 1.90821492927058770002e-10


class Drawing:
    """Draws the choices of one session.

    Attributes:
        number: of the next decision; the first one of a session is 1.

    Args:
        exploration: of the session.
        number: likewise.

    """

    def __init__(self, exploration: Exploration, number: int = 1) -> None:
        self.number = number
        self._exploration = exploration
        # gRPC carries them as floats.
        with np.errstate(over="ignore"):
            self._temperature = float(np.float32(exploration.temperature))
            self._epsilon = float(np.float32(exploration.epsilon))

    def at(self, number: int) -> "Drawing":
        """Give the drawing of this session whose next decision has this number."""
        return Drawing(self._exploration, number)

    def draw(self, scores: npt.NDArray[np.float64], legal: npt.NDArray[np.bool_], best: int) -> tuple[int, float]:
        """Draw the next decision's choice; give its number and its log-probability, a float32's.

        Args:
            scores: logits of the choices, shape [n], without NaN among the legal ones.
            legal: which ones may be chosen, shape [n]; at least one.
            best: the first of the best legal ones.

        """
        uniform = _uniform(self._exploration.seed, self.number)
        self.number += 1
        allowed = legal.tolist()
        weights = self._weights(scores.tolist(), allowed, best)
        # `sum` would compensate for rounding, in some versions of Python.
        *_, total = accumulate(weights)
        epsilon, count = self._epsilon, float(allowed.count(True))
        rest, even = 1.0 - epsilon, epsilon / count
        chances = [
            rest * weight / total + (even if each else 0.0) for weight, each in zip(weights, allowed, strict=True)
        ]
        ends = list(accumulate(chances))
        drawn = bisect_right(ends, uniform * ends[-1])
        if drawn == len(ends):
            # The product was rounded up to the sum.
            drawn = max(place for place, chance in enumerate(chances) if chance > 0)
        return drawn, log_probability(chances[drawn])

    def _weights(self, scores: list[float], legal: list[bool], best: int) -> list[float]:
        # Lists: for the few choices of a head numpy takes twice as long.
        if self._temperature == 0:
            return [float(place == best) for place in range(len(scores))]
        top, temperature, powers = scores[best], self._temperature, _powers()
        weights = []
        for score, allowed in zip(scores, legal, strict=True):
            if not allowed:
                weights.append(0.0)
            elif score == top:
                weights.append(1.0)
            else:
                steps = (top - score) / temperature * _STEP
                # NaN, of two infinities, is not below.
                weights.append(powers[round(steps)] if steps < _MOST else 0.0)
        return weights


@lru_cache(maxsize=1)
def _powers() -> list[float]:
    """Give e^(-k/256) of each number of steps."""
    made: list[float] = arithmetic.exp(-np.arange(int(_MOST) + 1) / _STEP).tolist()
    return made


def _uniform(seed: int, number: int) -> float:
    """Give the number's result of SplitMix64, from its upper 53 bits: at least 0 and below 1."""
    z = (seed + number * 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return float((z ^ (z >> 31)) >> 11) * 2.0**-53


def log_probability(chance: float) -> float:
    """Give the logarithm of a probability above 0, a float32's; of one that was rounded above 1 it is 0.

    By the steps of `arithmetic.log`, which takes ten times as long for a single number.
    """
    if chance >= 1:
        return 0.0
    m, n = math.frexp(chance)
    m, n = m * 2.0, n - 1
    if m > 1.4142135623730951:
        m, n = m * 0.5, n + 1
    s = (m - 1.0) / (m + 1.0)
    t = s * s
    total = 0.0
    for k in range(25, 1, -2):
        total = (total + 1.0 / k) * t
    return float(np.float32(n * _LN2_HIGH + (n * _LN2_LOW + 2.0 * s * (1.0 + total))))
