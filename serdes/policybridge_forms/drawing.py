"""The draw of a session that explores: from the scores of the choices to one of them, and its log-probability.

The server and every client draw by the same steps, those of docs/forms.md, so the same scores give the same bits; in
C++ by clients/cpp/src/form_drawing.cpp.
"""

import math
from functools import lru_cache
from typing import Any, Final

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
        weights = self._weights(scores, legal, best)
        total = np.cumsum(weights)[-1]
        chances = (1.0 - self._epsilon) * weights / total + self._epsilon * legal / float(legal.sum())
        ends = np.cumsum(chances)
        index = int(np.searchsorted(ends, uniform * ends[-1], side="right"))
        # The product may be rounded up to the sum. Then a draw must not give a choice of probability 0.
        drawn = min(index, int(np.flatnonzero(chances)[-1]))
        return drawn, log_probability(float(chances[drawn]))

    def _weights(self, scores: npt.NDArray[np.float64], legal: npt.NDArray[np.bool_], best: int) -> Any:
        top = scores[best]
        if self._temperature == 0:
            return (np.arange(len(scores)) == best).astype(np.float64)
        with np.errstate(all="ignore"):
            steps = (top - scores) / self._temperature * _STEP
            near = legal & (steps < _MOST)
        weights = np.where(near, _powers()[np.rint(np.where(near, steps, 0.0)).astype(np.intp)], 0.0)
        return np.where(legal & (scores == top), 1.0, weights)


@lru_cache(maxsize=1)
def _powers() -> npt.NDArray[np.float64]:
    """Give e^(-k/256) of each number of steps."""
    return arithmetic.exp(-np.arange(int(_MOST) + 1) / _STEP)


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
