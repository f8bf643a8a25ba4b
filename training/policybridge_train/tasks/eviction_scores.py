"""A policy for eviction with few weights: each position gets a score, linear in its features; the lowest is evicted.

The features are logarithms, so that the weights are exponents: the first column alone is the weight by which LLVM
chooses.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from policybridge_serdes import Values
from policybridge_train.onnx_file import OnnxGraph
from policybridge_train.tasks.allocation import POSITIONS


class Column(NamedTuple):
    """The feature of a weight.

    Attributes:
        feature: of LLVM; empty for 1.
        least: added before the logarithm; 0 for no logarithm.
        scale: how far training tries the weight in one step.
        own: whether it is of the last position alone, which is the live range that wants a register.

    """

    feature: str
    least: float = 0.0
    scale: float = 0.3
    own: bool = False


COLUMNS: Final = (
    Column("use_def_density", 1e-4, 0.1),
    Column("liverange_size", 1e-3, 0.1),
    Column("", own=True),
    Column("nr_broken_hints"),
    Column("is_hint"),
    Column("is_local"),
    Column("nr_rematerializable"),
    Column("weighed_read_writes_by_max", 1e-3, 0.1),
    Column("hottest_bb_freq_by_max", 1e-3, 0.1),
    Column("max_stage", scale=0.15),
    Column("min_stage", scale=0.15),
    Column("nr_urgent"),
    Column("is_free"),
    Column("nr_defs_and_uses", 0.1, 0.1),
    Column("hint_weights_by_max"),
    Column("weighed_indvars_by_max"),
    Column("start_bb_freq_by_max", 1e-3, 0.1),
    Column("end_bb_freq_by_max", 1e-3, 0.1),
    Column("progress", own=True),
    Column("liverange_size", 1e-3, 0.1, own=True),
    Column("hottest_bb_freq_by_max", 1e-3, 0.1, own=True),
    Column("nr_rematerializable", own=True),
    Column("weighed_reads_by_max", 1e-3, 0.1),
    Column("weighed_writes_by_max", 1e-3, 0.1),
)

FEATURES: Final = tuple(dict.fromkeys(column.feature for column in COLUMNS if column.feature))
_INTEGERS: Final = ("is_free", "is_hint", "is_local", "max_stage", "min_stage")
_OWN: Final[npt.NDArray[np.float64]] = (np.arange(POSITIONS) == POSITIONS - 1).astype(np.float64)

_DENSITY: Final = "use_def_density"

FIRST: Final = -1e9
"""The score of a live range that cannot be spilled: its weight is infinite, and by the largest one it is NaN.

Mostly it is the one that wants a register. That it is chosen means that nothing is evicted for it, and LLVM splits
instead. The other weights are 0 then and tell nothing: to evict by them cost 16 % more on projects for validation.
"""

Weights = npt.NDArray[np.float64]

LIGHTEST: Final = (1.0, *[0.0] * (len(COLUMNS) - 1))
"""The weights with which the lightest live range is evicted."""


def columns_of(observation: Values) -> npt.NDArray[np.float64]:
    """Give the columns of one observation, shape [33, columns]."""
    columns = np.zeros((POSITIONS, len(COLUMNS)))
    for number, column in enumerate(COLUMNS):
        columns[:, number] = _column(column, observation)
    return columns


def _column(column: Column, observation: Values) -> npt.NDArray[np.float64]:
    if not column.feature:
        return _OWN
    values: npt.NDArray[np.float64] = np.zeros(POSITIONS)
    values += observation[column.feature].reshape(-1)
    values = np.clip(values, 0, _limit(column.feature))
    if column.least:
        values = np.log(values + column.least)
    return _OWN * values if column.own else values


def _limit(feature: str) -> float:
    """Give the largest value that is taken; how many urgent evictions there are beyond 2 tells nothing more."""
    return 2.0 if feature == "nr_urgent" else 1e6


def evicted(observation: Values, weights: Weights) -> int:
    """Give the legal position with the lowest score; see `FIRST`."""
    scores = np.where(np.isnan(observation[_DENSITY].reshape(-1)), FIRST, columns_of(observation) @ weights)
    return int(np.argmin(np.where(observation["mask"].reshape(-1) != 0, scores, np.inf)))


def to_onnx(weights: Weights) -> bytes:
    """Give the policy as an ONNX model: inputs as LLVM sends them, and the output ``scores``, float[batch, 33].

    The highest score is the best, as a ``[head]`` wants it. The same weights give the same bytes.
    """
    graph = OnnxGraph()
    floats = {name: _float(graph, name) for name in FEATURES}
    terms = [_term(graph, column, weight, floats) for column, weight in zip(COLUMNS, weights, strict=True)]
    cannot_spill = graph.node("IsNaN", [_DENSITY])
    graph.node("Where", [cannot_spill, graph.constant(-FIRST), graph.node("Sum", terms)], "scores")
    inputs = {
        name: ("INT64" if name in _INTEGERS else "FLOAT", ["batch", 1 if name == "progress" else POSITIONS])
        for name in FEATURES
    }
    return graph.to_bytes(inputs, {"scores": ("FLOAT", ["batch", POSITIONS])}, opset=17, ir_version=9)


def _float(graph: OnnxGraph, name: str) -> str:
    given = graph.cast(name, "FLOAT")
    return graph.node("Clip", [given, graph.constant(0), graph.constant(_limit(name))])


def _term(graph: OnnxGraph, column: Column, weight: float, floats: Mapping[str, str]) -> str:
    # Less is better there, and more is better in a head's scores.
    factor = graph.constant(-weight * (_OWN if column.own else np.ones(POSITIONS)))
    if not column.feature:
        return factor
    value = floats[column.feature]
    if column.least:
        value = graph.node("Log", [graph.node("Add", [value, graph.constant(column.least)])])
    return graph.node("Mul", [value, factor])


def config() -> str:
    """Give ``policy.toml`` of such policies."""
    return (
        'backend = "onnx"\n'
        'description = "Evicts the live range with the lowest of linear scores, fitted to the spills of functions"\n\n'
        '[head]\nmask = "mask"\nadvice = "index_to_evict"\n'
    )
