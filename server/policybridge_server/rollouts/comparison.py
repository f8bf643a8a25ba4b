"""How an outcome differs between two versions, on the files that both have compiled, with an interval."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from policybridge_server.repository.conditions import FAILED

CONFIDENCE: Final = 0.95
"""Of the intervals that people see, and of all comparisons of a roll-out together."""

SAMPLES: Final = 4000
"""Of the bootstrap, where a version is judged by it."""

_DRAWN: Final = 1 << 17
"""Numbers drawn in one step, in which numpy holds the interpreter for less than a millisecond."""


@dataclass(frozen=True)
class Change:
    """An outcome of two versions.

    Attributes:
        name: the outcome's name, or `FAILED`.
        files: number of files that both versions have compiled.
        base: its sum over these files with the base; of `FAILED`, the part that failed.
        version: likewise, with the version.
        change: the relative change of the sum; of `FAILED`, the difference.
        low: the lower end of the interval of the change.
        high: the upper end.

    """

    name: str
    files: int
    base: float
    version: float
    change: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.name} {self.change:+.3%} [{self.low:+.3%}, {self.high:+.3%}] over {self.files} files"


def compare(
    name: str, pairs: npt.NDArray[np.float64], confidence: float = CONFIDENCE, samples: int = SAMPLES
) -> Change | None:
    """Compare an outcome file by file.

    The interval is that of the bootstrap over files (Efron 1979), by percentiles, from a fixed seed: the same outcomes
    give the same interval.

    Args:
        name: of the outcome, or `FAILED`.
        pairs: its values by file: base, version; shape [n, 2].
        confidence: of the interval.
        samples: of the bootstrap.

    Returns:
        The change; ``None`` if there are fewer than two files, or the base's sum is not above 0.

    """
    files = len(pairs)
    if files < 2:
        return None
    base, version = pairs.sum(axis=0)
    if name != FAILED and base <= 0:
        return None
    sums = _resampled(pairs, samples)
    changes = _changes(name, files, sums)
    low, high = np.quantile(changes, [(1 - confidence) / 2, (1 + confidence) / 2])
    scale = files if name == FAILED else 1
    change = float(_changes(name, files, np.array([[base, version]]))[0])
    return Change(name, files, float(base / scale), float(version / scale), change, float(low), float(high))


def _changes(name: str, files: int, sums: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    base, version = sums[:, 0], sums[:, 1]
    if name == FAILED:
        return np.asarray((version - base) / files)
    # A sample may have only files whose base is 0.
    return np.asarray(np.divide(version - base, base, out=np.full_like(base, np.inf), where=base > 0))


def _resampled(pairs: npt.NDArray[np.float64], samples: int) -> npt.NDArray[np.float64]:
    """Give the sums over files that are drawn again and again, with replacement; shape [samples, 2]."""
    generator = np.random.default_rng(0)
    files = len(pairs)
    step = max(1, _DRAWN // files)
    parts: list[npt.NDArray[Any]] = []
    for start in range(0, samples, step):
        drawn = generator.integers(files, size=(min(step, samples - start), files))
        parts.append(pairs[drawn].sum(axis=1))
    return np.concatenate(parts)
