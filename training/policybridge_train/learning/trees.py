"""A tree ensemble that predicts what inlining a call costs, and the policy that follows it, as an ONNX file.

The features of a call predict its credit well enough to decide by (gradient-boosted trees; Friedman, Greedy function
approximation, 2001). LightGBM fits them, and ONNX Runtime has an operator for them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError
from policybridge_train.onnx_file import OnnxGraph

_OPSET: Final = 13
_IR_VERSION: Final = 8
"""Old enough for every ONNX Runtime that we support."""

Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True)
class TreeSettings:
    """How trees are fitted.

    Attributes:
        trees: how many.
        leaves: of each tree.
        rate: the learning rate.
        least: rows of a leaf.
        fraction: of the features that each tree may ask about, drawn by chance.
        l2: the larger, the more rows a leaf needs before it counts.
        most: the largest credit that counts, in bytes: a few huge ones would decide everything.
        seed: the same rows and seed give the same trees.

    """

    trees: int = 160
    leaves: int = 31
    rate: float = 0.06
    least: int = 80
    fraction: float = 1.0
    l2: float = 0.0
    most: float = 250.0
    seed: int = 0


@dataclass(frozen=True)
class Trees:
    """A fitted ensemble; without trees it predicts 0.

    Attributes:
        nodes: of all trees, by the names of the attributes of ONNX's TreeEnsembleRegressor.

    """

    nodes: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    model: Any = None

    def roots(self) -> list[Mapping[str, Any]]:
        """Give the root of each tree, as LightGBM dumps it."""
        return [] if self.model is None else [tree["tree_structure"] for tree in self.model.dump_model()["tree_info"]]

    def predict(self, rows: Matrix) -> npt.NDArray[np.float64]:
        """Predict the bytes that "inline" costs more than "call", a number for each row."""
        if self.model is None or not len(rows):
            return np.zeros(len(rows))
        predicted: npt.NDArray[np.float64] = self.model.predict(rows)
        return predicted


def fit(rows: Matrix, bytes_: npt.NDArray[np.float32], settings: TreeSettings, weights: Matrix | None = None) -> Trees:
    """Fit trees to the bytes that were seen, shape [n]."""
    import lightgbm  # noqa: PLC0415 - half a second, which only training pays

    if not len(rows):
        return Trees()
    parameters = {
        "objective": "regression",
        "learning_rate": settings.rate,
        "num_leaves": settings.leaves,
        "min_data_in_leaf": settings.least,
        "feature_fraction": settings.fraction,
        "lambda_l2": settings.l2,
        "seed": settings.seed,
        "deterministic": True,
        "force_row_wise": True,
        "verbosity": -1,
        "num_threads": 1,
    }
    clipped = np.clip(bytes_, -settings.most, settings.most)
    # Predictions come from bytes, not from an average: trees around 0 leave a call as LLVM decides it.
    parameters["boost_from_average"] = False
    model = lightgbm.train(parameters, lightgbm.Dataset(rows, clipped, weight=weights), settings.trees)
    return Trees(nodes_of([tree["tree_structure"] for tree in model.dump_model()["tree_info"]]), model)


def nodes_of(trees: Sequence[Mapping[str, Any]], targets: Sequence[int] = ()) -> dict[str, list[Any]]:
    """Give the attributes of a TreeEnsembleRegressor, from the root of each tree as LightGBM dumps it.

    Args:
        trees: their roots.
        targets: the output that each tree adds to; by default all to the only one.

    """
    found: dict[str, list[Any]] = {f"nodes_{name}": [] for name in _NODE} | {f"target_{name}": [] for name in _LEAF}
    for number, tree in enumerate(trees):
        for node in _numbered(tree):
            _add(found, number, node, targets[number] if targets else 0)
    return found


_NODE: Final = ("treeids", "nodeids", "featureids", "values", "modes", "truenodeids", "falsenodeids")
_LEAF: Final = ("treeids", "nodeids", "ids", "weights")


@dataclass
class _Node:
    number: int
    content: Mapping[str, Any]
    left: int = 0
    right: int = 0


def _numbered(root: Mapping[str, Any]) -> list[_Node]:
    nodes = [_Node(0, root)]
    for node in nodes:
        if "split_feature" in node.content:
            if node.content["decision_type"] != "<=":
                raise InvalidError(
                    f"a tree compares by {node.content['decision_type']}, which has no form in ONNX here"
                )
            node.left, node.right = len(nodes), len(nodes) + 1
            nodes.append(_Node(node.left, node.content["left_child"]))
            nodes.append(_Node(node.right, node.content["right_child"]))
    return nodes


def _add(found: dict[str, list[Any]], tree: int, node: _Node, target: int) -> None:
    split = "split_feature" in node.content
    # LightGBM writes whole numbers without a point, and ONNX would take a list of them for integers.
    values = (
        tree,
        node.number,
        node.content["split_feature"] if split else 0,
        float(node.content["threshold"]) if split else 0.0,
        "BRANCH_LEQ" if split else "LEAF",
        node.left,
        node.right,
    )
    for name, value in zip(_NODE, values, strict=True):
        found[f"nodes_{name}"].append(value)
    if not split:
        for name, value in zip(_LEAF, (tree, node.number, target, float(node.content["leaf_value"])), strict=True):
            found[f"target_{name}"].append(value)


def to_onnx(trees: Trees, features: Sequence[str], default: str, least: float, advice: str) -> bytes:
    """Give the policy as an ONNX model: the default decision, unless the other saves more than ``least`` bytes.

    Its input ``observation`` is float[batch, features], its output int64[batch, 1]. The same trees give the same bytes.

    Raises:
        InvalidError: ``least`` is not more than 0, so that nothing would decide where the trees predict 0.

    """
    if not least > 0:
        raise InvalidError(f"a deviation is to save more than 0 bytes, not {least:g}")
    graph = OnnxGraph()
    if trees.nodes:
        predicted = graph.trees(["observation"], 1, trees.nodes)
    else:
        predicted = graph.node("MatMul", ["observation", graph.constant(np.zeros((len(features), 1)))])
    own = graph.node("Gather", ["observation", graph.constant([features.index(default)], np.int64)], axis=1)
    side = graph.node("Sub", [graph.node("Mul", [own, graph.constant(2)]), graph.constant(1)])
    below = graph.node("Less", [predicted, graph.node("Mul", [side, graph.constant(least)])])
    graph.cast(below, "INT64", advice)
    inputs, outputs = {"observation": ("FLOAT", ["batch", len(features)])}, {advice: ("INT64", ["batch", 1])}
    return graph.to_bytes(inputs, outputs, _OPSET, _IR_VERSION)
