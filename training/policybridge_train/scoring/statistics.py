"""The change of a measure between two contenders, over many modules or programs, and how sure it is."""

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

_SAMPLES: Final = 2000
_CHUNK: Final = 4_000_000
"""Counts that are in memory at once."""
_LEVEL: Final = 0.95

Numbers = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


class Estimate(msgspec.Struct, frozen=True):
    """A change, as a fraction (-0.01 is one percent less), and its interval of 95 %."""

    value: float
    low: float
    high: float


class Change(msgspec.Struct, frozen=True):
    """How a measure changed.

    Attributes:
        count: the number of modules or programs.
        before: the sum under the baseline.
        after: the sum under the candidate.
        total: the change of the sum.
        mean: the mean of the changes of each.
        median: their median.
        wins: how many became less.
        losses: how many became more.
        same: how many stayed as they were.

    ``total``, ``mean`` and ``median`` are ``None`` where nothing has a value above 0 under the baseline.

    """

    count: int
    before: float
    after: float
    total: Estimate | None
    mean: Estimate | None
    median: Estimate | None
    wins: int
    losses: int
    same: int


def change(before: Sequence[float], after: Sequence[float], projects: Sequence[str], samples: int = _SAMPLES) -> Change:
    """Compare the values of two contenders.

    The intervals are those of a bootstrap in two stages: projects are drawn with replacement, and of each drawn project
    as many modules as it has, with replacement. So they also tell how much it matters which projects are in the corpus.
    The draws are the same in each run.

    Args:
        before: the baseline's values.
        after: the candidate's, in the same order.
        projects: the project of each.
        samples: how many times is drawn.

    """
    old, new = np.asarray(before, float), np.asarray(after, float)
    wins, losses = int((new < old).sum()), int((new > old).sum())
    total = mean = median = None
    if (old > 0).any():
        # Where the baseline has 0, there is no relative change; the sums have it nevertheless.
        total, mean, median = _estimates(old, new, projects, samples)
    return Change(
        len(old), float(old.sum()), float(new.sum()), total, mean, median, wins, losses, len(old) - wins - losses
    )


def _estimates(old: Numbers, new: Numbers, projects: Sequence[str], samples: int) -> list[Estimate]:
    ratios = np.divide(new, old, out=np.ones_like(old), where=old > 0)
    drawn = [_of(np.ones((1, len(old)), np.int64), old, new, ratios)]
    generator = np.random.default_rng(0)
    step = max(1, _CHUNK // len(old))
    for begin in range(0, samples, step):
        counts = _draw(projects, min(step, samples - begin), generator)
        drawn.append(_of(counts, old, new, ratios))
    values = np.concatenate(drawn) - 1
    tails = [(1 - _LEVEL) / 2, (1 + _LEVEL) / 2]
    low, high = np.nanquantile(values[1:] if samples else values, tails, axis=0)
    return [Estimate(*map(float, each)) for each in zip(values[0], low, high, strict=True)]


def _draw(projects: Sequence[str], samples: int, generator: np.random.Generator) -> Counts:
    """Give how often each module is drawn, as an array of samples × modules."""
    names, numbers = np.unique(np.asarray(projects, object).astype(str), return_inverse=True)
    often = generator.multinomial(len(names), np.full(len(names), 1 / len(names)), samples)
    counts = np.zeros((samples, len(numbers)), np.int64)
    for project in range(len(names)):
        (members,) = np.nonzero(numbers == project)
        own = np.full(len(members), 1 / len(members))
        counts[:, members] = generator.multinomial(often[:, project] * len(members), own)
    return counts


def _of(counts: Counts, old: Numbers, new: Numbers, ratios: Numbers) -> Numbers:
    """Give total, mean and median of each sample, as ratios; NaN where a sample has nothing to compare."""
    relative = np.flatnonzero(old > 0)
    order = relative[np.argsort(ratios[relative], kind="stable")]
    ordered = np.ascontiguousarray(counts[:, order])
    reached = ordered.cumsum(axis=1)
    drawn = reached[:, -1]
    # Of an even number, the two in the middle.
    middle = [_at(reached, rank) for rank in ((drawn - 1) // 2, drawn // 2)]
    median = np.where(drawn > 0, ratios[order][middle].mean(axis=0), np.nan)
    # As floats, because only those are multiplied fast.
    sums = counts.astype(float) @ np.stack([old, new], axis=1)
    total, mean = _divided(sums[:, 1], sums[:, 0]), _divided(ordered.astype(float) @ ratios[order], drawn)
    return np.stack([total, mean, median], axis=1)


def _divided(above: Numbers, below: Numbers | Counts) -> Numbers:
    divided: Numbers = np.divide(above, below, out=np.full(len(above), np.nan), where=below > 0)
    return divided


def _at(reached: Counts, ranks: Counts) -> Counts:
    """Give, for each sample, the module in which a running count passes a rank; the last one where none does."""
    last = reached.shape[1] - 1
    found = [min(int(np.searchsorted(row, rank, side="right")), last) for row, rank in zip(reached, ranks, strict=True)]
    return np.array(found, np.int64)
