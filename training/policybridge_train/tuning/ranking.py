"""Ranks flips by a model of their credit, fitted to the flips tried so far in all modules.

The features predict the credit well (gradient-boosted trees; Friedman, Greedy function approximation, 2001), so a
search that follows the model finds in few compiles what one by chance finds in many.
"""

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

import numpy as np

from policybridge_train.compiling.result import NUMBERS, Site
from policybridge_train.tuning.flips import CallGraph, Flip

_COST: Final = NUMBERS.index("cost")
_THRESHOLD: Final = NUMBERS.index("threshold")
_FIRST_FIT: Final = 300
_GROWTH: Final = 1.25
"""The model is fitted again when the labels have become more by this factor."""

_MOST_LABELS: Final = 60_000
"""Labels that are kept, chosen by chance; all of a thousand modules would not fit into memory."""

_MOST_BYTES: Final = (-100.0, 20.0)
"""Credits beyond these count as these: a few huge ones would else decide everything. How much a flip costs that is
refused does not matter, so that side is shorter. Seen with SQLite: the 200 flips that the model puts first give 1,880
bytes, and 1,330 with 300 on both sides."""

_COST_BYTES: Final = 0.8
"""Bytes for each unit of LLVM's cost, which counts 5 for an instruction."""

_INSTRUCTION_BYTES: Final = 4
_CALL_BYTES: Final = 20
_ENTRY_BYTES: Final = 24
"""Of a function's entry in the unwind table, at least."""

Features = Sequence[float]
"""Of one flip; see `FEATURES`."""

Label = tuple[Features, float]
"""A flip that was tried, and its credit in bytes."""


@dataclass
class _Sum:
    total: float = 0.0
    count: int = 0

    def add(self, credit: float) -> None:
        self.total += credit
        self.count += 1

    @property
    def mean(self) -> float:
        return self.total / self.count if self.count else math.nan


class Seen:
    """The credit of the flips tried so far: one call of a function tells much of the others.

    Args:
        sites: by caller, the calls that the module has now.
        tried: the credits of the tried flips, by name.

    """

    def __init__(self, sites: Mapping[str, Sequence[Site]], tried: Mapping[str, float]) -> None:
        self.credits = tried
        self.callees: defaultdict[tuple[bool, str], _Sum] = defaultdict(_Sum)
        self._callers: defaultdict[tuple[bool, str], _Sum] = defaultdict(_Sum)
        for its in sites.values():
            for site in its:
                for inline in (False, True):
                    credit = tried.get(f"{int(inline)}{site.key}")
                    if credit is not None and math.isfinite(credit):
                        self.callees[inline, site.callee].add(credit)
                        self._callers[inline, site.caller].add(credit)

    def mean_of_callee(self, flip: Flip) -> float:
        """Give the mean credit of the flips of this callee to the same side; not a number where there was none."""
        return self.callees[flip.inline, flip.callee].mean

    def mean_of_caller(self, flip: Flip) -> float:
        """Give the mean credit of the flips in this caller to the same side; not a number where there was none."""
        return self._callers[flip.inline, flip.sites[0].caller].mean


FEATURES: Final = (
    "inline",
    "group",
    "sites",
    "affected",
    "left",
    "calls",
    "callee_bytes",
    "caller_bytes",
    "default",
    "seen",
    "seen_of_callee",
    "count_of_callee",
    "seen_of_caller",
    "margin",
    *NUMBERS,
)
"""The columns of `features`."""


def features(flips: Sequence[Flip], graph: CallGraph, sizes: Mapping[str, int], seen: Seen) -> list[Features]:
    """Describe flips by numbers, for a model that says which of them are worth a compile."""
    return [_features(flip, graph, sizes, seen) for flip in flips]


def _features(flip: Flip, graph: CallGraph, sizes: Mapping[str, int], seen: Seen) -> Features:
    site = flip.sites[0]
    left = graph.left[site.callee]
    count = len(flip.sites)
    numbers = site.numbers
    if count > 1:
        numbers = tuple(sum(each) / count for each in zip(*(one.numbers for one in flip.sites), strict=True))
    return (
        float(flip.inline),
        float(flip.group),
        float(count),
        float(flip.affected.bit_count()),
        float(left - count if flip.inline else left + count),
        float(len(graph.calls[site.callee])),
        float(sizes.get(site.callee, 0)),
        float(sizes.get(site.caller, 0)),
        float(site.default),
        seen.credits.get(flip.name, math.nan),
        seen.mean_of_callee(flip),
        float(seen.callees[flip.inline, flip.callee].count),
        seen.mean_of_caller(flip),
        numbers[_COST] - numbers[_THRESHOLD],
        *numbers,
    )


class Ranking:
    """Predicts the credit of flips in bytes; below zero is smaller. Usable from any thread.

    Args:
        seed: of the choice of labels, where there are too many.

    """

    def __init__(self, seed: int = 0) -> None:
        self._labels: list[Label] = []
        self._seen = 0
        self._model: Any = None
        self._next_fit = _FIRST_FIT
        self._lock = Lock()
        self._random = random.Random(seed)  # noqa: S311 - no secret

    def add(self, labels: Iterable[Label]) -> None:
        """Learn from tried flips."""
        with self._lock:
            for label in labels:
                self._keep(label)
            due = self._seen >= self._next_fit
            if due:
                self._next_fit = int(self._seen * _GROWTH)
                table, found = (np.array(column) for column in zip(*self._labels, strict=True))
        if due:
            self._model = _fitted(table, found)

    def _keep(self, label: Label) -> None:
        """Keep a label, so that each of all that were seen is kept with the same chance (Vitter, 1985, algorithm R)."""
        self._seen += 1
        if len(self._labels) < _MOST_LABELS:
            self._labels.append(label)
        elif (place := self._random.randrange(self._seen)) < _MOST_LABELS:
            self._labels[place] = label

    def predict(self, rows: Sequence[Features]) -> list[float]:
        """Predict the credits of flips."""
        if not rows:
            return []
        table, model = np.array(rows), self._model
        predicted: list[float] = (_guess(table) if model is None else _predicted(model, table)).tolist()
        return predicted


def _fitted(rows: Any, labels: Any) -> Any:
    from sklearn.ensemble import HistGradientBoostingRegressor  # noqa: PLC0415 - a second that only a search pays

    # A column that nothing is known of yet cannot be binned.
    rows = np.where(np.isnan(rows).all(axis=0), 0.0, rows)
    model = HistGradientBoostingRegressor(max_iter=150, learning_rate=0.06, min_samples_leaf=15, random_state=0)
    with _one_thread():
        return model.fit(rows, np.clip(labels, *_MOST_BYTES))


def _predicted(model: Any, rows: Any) -> Any:
    with _one_thread():
        return model.predict(rows)


def _one_thread() -> Any:
    """Keep a fit to one thread: compilers have the cores, and OpenMP's threads would wait for each other by spinning.

    Seen beside compilers on two cores: 34 seconds of processor time for a fit that takes one.
    """
    from threadpoolctl import threadpool_limits  # noqa: PLC0415 - as above

    return threadpool_limits(1, "openmp")


def _guess(rows: Any) -> Any:
    """Before there are labels: LLVM's estimate of the code that comes in or goes, and what of the callee is left.

    Those away from "inline" come last: 1.5 % of them help. Seen in 41,173 flips of 37 packages: of the 500 that it puts
    first 73 % help.
    """
    column = {name: np.nan_to_num(rows[:, number]) for number, name in enumerate(FEATURES)}
    inline, callee = column["inline"] > 0, column["callee_bytes"]
    code = column["sites"] * column["cost"] * _COST_BYTES
    goes = inline & (column["left"] <= 0)
    body = np.where(callee > 0, 0, column["callee_instructions"] * _INSTRUCTION_BYTES + _ENTRY_BYTES)
    return np.where(inline, code - np.where(goes, callee, 0), _CALL_BYTES + body)
