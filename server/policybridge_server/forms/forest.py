"""Tree ensembles of ONNX, as tables that are walked without branches.

A tree's nodes lie level by level, the two children of a node side by side, so that one step is ``at += skip + test``; a
leaf steps to itself. Trees that are about as deep are walked together: their steps do not wait for each other. The
leaves' weights are then added in the order of the trees, which is that of ONNX Runtime, so that the sum is the same to
the last bit.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import UnsupportedError

_SWAPPED: Final = {"BRANCH_GTE": "BRANCH_LT", "BRANCH_GT": "BRANCH_LEQ"}
_MODES: Final = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT")
_MOST_DEPTH: Final = 4096


@dataclass(frozen=True)
class Weight:
    """A leaf's contribution to one target."""

    target: int
    value: float


@dataclass
class Placed:
    """A node in the tables.

    Attributes:
        feature: the input's column; 0 in a leaf.
        threshold: compared with the feature. With one target ONNX Runtime adds that of a leaf without weights.
        skip: the distance to the first child; 0 in a leaf.
        nan: whether NaN goes to the second child.
        weights: of a leaf.

    """

    feature: int
    threshold: float
    skip: int = 0
    nan: bool = False
    weights: tuple[Weight, ...] = ()


@dataclass(frozen=True)
class Tree:
    """Nodes from the root, level by level; the depth is the number of steps to the deepest leaf."""

    nodes: Sequence[Placed]
    depth: int


def read_trees(attributes: Mapping[str, Any], leaf: str, dtype: npt.DTypeLike) -> list[Tree]:
    """Read the trees in ONNX Runtime's order, that in which the nodes name them.

    Args:
        attributes: of a TreeEnsembleRegressor or TreeEnsembleClassifier.
        leaf: ``target`` or ``class``, as the attributes of leaves begin.
        dtype: of the thresholds.

    Raises:
        UnsupportedError: a node compares by (in)equality, or the nodes form no trees.

    """
    weights = _weights(attributes, leaf)
    columns = _Columns(attributes, np.dtype(dtype))
    ids = [(int(tree), int(node)) for tree, node in zip(columns.trees, columns.nodes, strict=True)]
    index = {each: place for place, each in enumerate(ids)}
    roots: dict[int, int] = {}
    for place, (tree, _) in enumerate(ids):
        roots.setdefault(tree, place)
    return [_placed(columns, index, weights, tree, root) for tree, root in roots.items()]


class _Columns:
    def __init__(self, attributes: Mapping[str, Any], dtype: np.dtype[Any]) -> None:
        self.trees = attributes.get("nodes_treeids", [])
        self.nodes = attributes.get("nodes_nodeids", [])
        self.features = attributes.get("nodes_featureids", [])
        self.modes = [each.decode() for each in attributes.get("nodes_modes", [])]
        self.yes = attributes.get("nodes_truenodeids", [])
        self.no = attributes.get("nodes_falsenodeids", [])
        self.values = np.asarray(attributes.get("nodes_values_as_tensor", attributes.get("nodes_values", [])), dtype)
        self.missing = attributes.get("nodes_missing_value_tracks_true") or [0] * len(self.trees)


def _weights(attributes: Mapping[str, Any], leaf: str) -> dict[tuple[int, int], list[Weight]]:
    made: dict[tuple[int, int], list[Weight]] = defaultdict(list)
    values = attributes.get(f"{leaf}_weights_as_tensor", attributes.get(f"{leaf}_weights", []))
    names = (attributes.get(f"{leaf}_{name}", []) for name in ("treeids", "nodeids", "ids"))
    for tree, node, target, value in zip(*names, values, strict=True):
        made[int(tree), int(node)].append(Weight(int(target), float(value)))
    return made


def _placed(
    columns: _Columns,
    index: Mapping[tuple[int, int], int],
    weights: Mapping[tuple[int, int], Sequence[Weight]],
    tree: int,
    root: int,
) -> Tree:
    found, level, depth = [root], [root], 0
    nodes: list[Placed] = []
    while level:
        below: list[int] = []
        for place in level:
            node, children = _node(columns, index, weights, tree, place)
            if children:
                node.skip = len(found) - len(nodes)
                found += children
                below += children
            nodes.append(node)
        if len(nodes) > len(columns.trees) or depth > _MOST_DEPTH:
            raise UnsupportedError(f"tree {tree} has a node with two parents, which has no form in C")
        level, depth = below, depth + bool(below)
    return Tree(nodes, depth)


def _node(
    columns: _Columns,
    index: Mapping[tuple[int, int], int],
    weights: Mapping[tuple[int, int], Sequence[Weight]],
    tree: int,
    place: int,
) -> tuple[Placed, list[int]]:
    mode, value = columns.modes[place], columns.values[place]
    if mode == "LEAF":
        return Placed(0, float(value), weights=tuple(weights.get((tree, int(columns.nodes[place])), ()))), []
    if mode not in _MODES:
        raise UnsupportedError(f"a tree compares by {mode}; C is written for {', '.join(_MODES)}")
    children = [index[tree, int(columns.yes[place])], index[tree, int(columns.no[place])]]
    nan, is_swapped = not columns.missing[place], mode in _SWAPPED
    if is_swapped:
        mode, children, nan = _SWAPPED[mode], children[::-1], not nan
    # x < t is x <= the number before t.
    threshold = np.nextafter(value, value.dtype.type(-np.inf)) if mode == "BRANCH_LT" else value
    # No x is below -infinity, and none compares with NaN. The other way round that is x <= infinity.
    if (mode == "BRANCH_LT" and value == -np.inf) or (np.isnan(value) and not is_swapped):
        children, nan = children[::-1], not nan
    if (mode == "BRANCH_LT" and value == -np.inf) or np.isnan(value):
        threshold = np.inf
    return Placed(int(columns.features[place]), float(threshold), nan=nan), children
