"""Credit: what turning single decisions of a policy does to the bytes of a module, many decisions in each compile.

A flip changes only the functions that its caller ends up in, and whether the callee is still emitted. So flips whose
functions are disjoint share a compile, and each has its own credit (see `policybridge_train.tuning.search`).
"""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from policybridge_train.compiling.result import NUMBERS, CompileResult, Site
from policybridge_train.trajectories.trajectory import Trajectory, site_keys
from policybridge_train.tuning.flips import CallGraph, Flip, flips_of
from policybridge_train.tuning.round import Sharers
from policybridge_train.tuning.search import Search

Matrix = npt.NDArray[np.float32]
Predict = Callable[[Matrix], npt.NDArray[np.float64]]
"""Gives the bytes that "inline" is expected to cost, shape [n], for the features of calls, shape [n, features]."""

_NOISE = 10.0
"""The random part of a flip's place in the order, in bytes: flips near the limit matter most, and any may be tried."""


@dataclass(frozen=True, eq=False)
class Labels:
    """The labels of flips.

    Attributes:
        rows: the features of the calls, shape [n, features].
        bytes: what "inline" costs more than "call" there, shape [n].
        weights: a flip of several calls is one label, shared among them; shape [n].

    """

    rows: Matrix
    bytes: npt.NDArray[np.float32]
    weights: npt.NDArray[np.float32]

    @classmethod
    def joined(cls, parts: Sequence["Labels"], width: int) -> "Labels":
        """Join labels, in their order; ``width`` is the number of features."""
        empty = cls(np.zeros((0, width), np.float32), np.zeros(0, np.float32), np.zeros(0, np.float32))
        columns = zip(*((part.rows, part.bytes, part.weights) for part in (empty, *parts)), strict=True)
        return cls(*(np.concatenate(column) for column in columns))

    def __len__(self) -> int:
        return len(self.bytes)


class Ground:
    """A module under a policy's decisions, and the flips that can be tried on them.

    Args:
        trajectory: the policy's compilation of the module.
        pinned: a compilation with the same decisions about all calls.
        features: the columns that are learnt from.
        shared: in how many modules of a program the module's shared functions are.

    """

    def __init__(
        self, trajectory: Trajectory, pinned: CompileResult, features: Sequence[str], shared: Mapping[str, int]
    ) -> None:
        self._search = Search.begin(pinned)
        self._search.share(shared)
        self._graph = CallGraph(self._search.sites, self._search.sizes)
        self._rows = trajectory.columns(features)
        self._places = {key: place for place, key in enumerate(site_keys(trajectory))}
        found = flips_of(self._search.sites, self._graph)
        # Calls that the policy was not asked about are LLVM's own.
        self.flips = [flip for flip in found if all(site.key in self._places for site in flip.sites)]

    def decisions(self, flips: Sequence[Flip]) -> dict[str, bool]:
        """Give what to compile with: the policy's decisions about all calls, but for those of the flips."""
        pinned = self._search.pinned().inlining
        return {**pinned, **{site.key: flip.inline for flip in flips for site in flip.sites}}

    def order(self, predict: Predict, chance: random.Random) -> list[Flip]:
        """Give all flips, those that are predicted to help most first, moved by chance."""
        predicted = self._predicted(predict)
        keys = [bytes_ + _NOISE * chance.gauss(0, 1) for bytes_ in predicted]
        return [self.flips[place] for place in sorted(range(len(keys)), key=keys.__getitem__)]

    def _predicted(self, predict: Predict) -> Iterator[float]:
        bytes_ = predict(self._rows)
        for flip in self.flips:
            side = 1.0 if flip.inline else -1.0
            yield side * sum(float(bytes_[self._places[site.key]]) for site in flip.sites) + _prior(flip)

    def fitting(self, flips: Sequence[Flip]) -> tuple[list[Flip], list[Flip]]:
        """Split flips into those that share a compile, and the rest."""
        sharers = Sharers(self._graph)
        chosen, rest = list[Flip](), list[Flip]()
        for flip in flips:
            (chosen if sharers.take(flip) else rest).append(flip)
        return chosen, rest

    def credits(self, flips: Sequence[Flip], seen: CompileResult) -> Iterator[tuple[Flip, float]]:
        """Give the credit of each flip of a compile, in bytes; below zero is smaller."""
        search = self._search
        for flip in flips:
            names = self._graph.names(flip.affected)
            yield flip, search.credit(names, search.sizes, seen.costs)

    def labels(self, credited: Sequence[tuple[Flip, float]]) -> Labels:
        """Give the labels: for each call of each flip, its features and its part of the credit.

        If n modules have the caller, a label has n times the credit, which counts the caller for its part, and an n-th
        of the weight: a label is the bytes of whole functions, and the n copies weigh as one.
        """
        shared = self._search.shared or {}
        rows, bytes_, weights = [], [], []
        for flip, credit in credited:
            side = 1.0 if flip.inline else -1.0
            for site in flip.sites:
                copies = shared.get(site.caller, 1)
                rows.append(self._rows[self._places[site.key]])
                bytes_.append(side * credit * copies / len(flip.sites))
                weights.append(1 / len(flip.sites) / copies)
        width = self._rows.shape[1]
        return Labels(
            np.array(rows, np.float32).reshape(len(rows), width),
            np.array(bytes_, np.float32),
            np.array(weights, np.float32),
        )


def decisions_of(trajectory: Trajectory) -> dict[str, bool]:
    """Give the policy's decisions by site."""
    return dict(zip(site_keys(trajectory), (trajectory.advice != 0).tolist(), strict=True))


def _prior(flip: Flip) -> float:
    """Give bytes to add to a prediction: of flips away from "inline" few help (1.4 % of 6,291; 17 % of the others)."""
    return _distance(flip.sites[0]) if flip.inline else 10.0 - _distance(flip.sites[0])


def _distance(site: Site) -> float:
    # LLVM's cost is about 5 for an instruction, which takes some 4 bytes.
    cost, threshold = (site.numbers[NUMBERS.index(name)] for name in ("cost", "threshold"))
    return float(np.clip((cost - threshold) * 0.8, -40, 40)) / 4
