"""The parts of a form: features, head, instructions, forests."""

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from policybridge_forms.words import Aggregate, Function, Opcode
from policybridge_serdes import TensorSpec


class Space(IntEnum):
    """Where an operand lies."""

    CONSTANTS = 0
    OBSERVATION = 1
    WORK = 2


class Scores(IntEnum):
    """The meaning of the result: the advice, the scores of the choices, or the choice."""

    ADVICE = 0
    LOGITS = 1
    PROBABILITIES = 2
    CHOICE = 3


@dataclass(frozen=True)
class Operand:
    """A row of elements: its space, element type, and offset in bytes."""

    space: Space
    dtype: np.dtype[Any]
    offset: int


@dataclass(frozen=True)
class Instruction:
    """One instruction; `policybridge_forms.checks` says which sizes and numbers each opcode has."""

    opcode: Opcode
    function: Function
    output: Operand
    inputs: tuple[Operand, ...]
    sizes: tuple[int, ...]
    numbers: tuple[float, ...] = ()

    @property
    def axes(self) -> int:
        """How many dimensions a MAP iterates over."""
        return len(self.sizes) // (1 + len(self.inputs))

    @property
    def dims(self) -> tuple[int, ...]:
        """The dimensions of a MAP."""
        return self.sizes[: self.axes]

    @property
    def strides(self) -> list[tuple[int, ...]]:
        """For each input of a MAP, the steps in elements along its dimensions."""
        axes = self.axes
        return [self.sizes[axes * (place + 1) : axes * (place + 2)] for place in range(len(self.inputs))]

    @property
    def count(self) -> int:
        """How many elements a MAP writes."""
        return math.prod(self.dims)


@dataclass(frozen=True)
class Forest:
    """Trees one behind the other, each level by level, the two children of a split side by side.

    The number j split of a tree, counted from 0, has the nodes 2j + 1 and 2j + 2 of the tree as children: a number of
    the column that is at most the threshold goes to the first. So no node is its own ancestor.

    Attributes:
        dtype: of thresholds and weights.
        columns: how many numbers of the observation the trees see.
        targets: how many scores they give.
        aggregate: how the weights of the trees are joined.
        sizes: the nodes of each tree.
        kinds: of each node; 0: a leaf, 1: a split, 3: a split with NaN going to the second child.
        links: of a split the column, of a leaf how many weights it has.
        thresholds: of a split.
        owners: the target of each weight, the weights of all leaves in the order of the nodes.
        weights: likewise.

    """

    dtype: np.dtype[Any]
    columns: int
    targets: int
    aggregate: Aggregate
    sizes: npt.NDArray[np.uint32]
    kinds: npt.NDArray[np.uint8]
    links: npt.NDArray[np.uint32]
    thresholds: npt.NDArray[Any]
    owners: npt.NDArray[np.uint32]
    weights: npt.NDArray[Any]

    @property
    def starts(self) -> npt.NDArray[np.int64]:
        """The number of the first node of each tree."""
        return np.cumsum(self.sizes, dtype=np.int64) - self.sizes

    def first_children(self) -> npt.NDArray[np.int64]:
        """Give the number of the first child of each split; of a leaf, its own."""
        splits = (self.kinds & 1).astype(np.int64)
        before = np.cumsum(splits) - splits
        starts = np.repeat(self.starts, self.sizes)
        return np.where(splits == 1, starts + 2 * (before - before[starts]) + 1, np.arange(len(splits)))

    def depths(self) -> list[int]:
        """Give the steps from the root to the deepest leaf of each tree."""
        first, depths = self.first_children(), np.zeros(len(self.kinds), np.int64)
        inner = np.flatnonzero(self.kinds & 1)
        for node, child in zip(inner.tolist(), first[inner].tolist(), strict=True):
            depths[child : child + 2] = depths[node] + 1
        # The last node of a tree is on its last level.
        return [int(depths[start + size - 1]) for start, size in zip(self.starts, self.sizes, strict=True)]

    def begins(self) -> npt.NDArray[np.int64]:
        """Give where the weights of each node begin, and where they end."""
        counts = np.where(self.kinds & 1, 0, self.links).astype(np.int64)
        return np.concatenate([[0], np.cumsum(counts)])


@dataclass(frozen=True)
class Feature:
    """A feature of the observation.

    Attributes:
        spec: its name, type and shape.
        offset: its place in the observation, in bytes.
        fill: what stands for it where a client does not have it, flat; ``None``: it has to.

    """

    spec: TensorSpec
    offset: int
    fill: npt.NDArray[Any] | None = None


@dataclass(frozen=True)
class Head:
    """How the result becomes advice.

    Attributes:
        scores: what the result is.
        choices: how many there are; 0 where the result is the advice.
        mask: the number of the feature that marks the legal choices; ``None``: all are.

    """

    scores: Scores = Scores.ADVICE
    choices: int = 0
    mask: int | None = None
