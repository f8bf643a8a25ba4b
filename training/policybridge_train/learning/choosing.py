"""Trees that predict the cost of each choice, and the policy that takes the cheapest one, as an ONNX file.

A unit may take several decisions in a row, of which later ones see the earlier: the cost of a decision is then that of
its unit if all later ones are taken as well as the trees know how (fitted Q iteration: Ernst, Geurts and Wehenkel,
Tree-Based Batch Mode Reinforcement Learning, 2005).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from policybridge_serdes import TensorSpec
from policybridge_train.learning.trees import Matrix, Trees, TreeSettings, fit, nodes_of
from policybridge_train.onnx_file import OnnxGraph

Numbers = npt.NDArray[np.float32]
_OPSET: Final = 17
_IR_VERSION: Final = 8


@dataclass(frozen=True, eq=False)
class Decisions:
    """Decisions that were tried, those of a unit one after another.

    Attributes:
        rows: the features, shape [n, columns].
        choices: the decisions, shape [n].
        costs: of the unit, minus its cost by default; shape [n].
        last: whether it is the last decision of its unit; shape [n].

    """

    rows: Matrix
    choices: npt.NDArray[np.int64]
    costs: Numbers
    last: npt.NDArray[np.bool_]

    @classmethod
    def joined(cls, parts: Sequence["Decisions"], columns: int) -> "Decisions":
        """Put decisions one after another."""
        none = cls(
            np.zeros((0, columns), np.float32), np.zeros(0, np.int64), np.zeros(0, np.float32), np.zeros(0, bool)
        )
        joined = [[getattr(part, name) for part in (none, *parts)] for name in ("rows", "choices", "costs", "last")]
        return cls(*(np.concatenate(each) for each in joined))

    def packed(self) -> bytes:
        """Give them as bytes."""
        return msgspec.msgpack.encode({name: value.tobytes() for name, value in vars(self).items()})

    @classmethod
    def unpacked(cls, data: bytes, columns: int) -> "Decisions":
        """Read what `packed` gave."""
        read = msgspec.msgpack.decode(data)
        rows = np.frombuffer(read["rows"], np.float32).reshape(-1, columns)
        choices, costs = np.frombuffer(read["choices"], np.int64), np.frombuffer(read["costs"], np.float32)
        return cls(rows, choices, costs, np.frombuffer(read["last"], bool))


@dataclass(frozen=True, eq=False)
class Costs:
    """Predicts the cost of each choice, in the task's unit, beyond the default's.

    Attributes:
        choices: how many there are.
        columns: of the features.
        trees: fitted to the features and, as a last column, the choice.

    """

    choices: int
    columns: int
    trees: Trees = field(default_factory=Trees)

    def predict(self, rows: Matrix) -> npt.NDArray[np.float64]:
        """Predict, shape [n, choices]."""
        found = [self.trees.predict(_with(rows, np.full(len(rows), choice))) for choice in range(self.choices)]
        return np.stack(found, axis=1)

    @classmethod
    def fitted(cls, known: Decisions, choices: int, settings: TreeSettings) -> "Costs":
        """Fit to tried decisions; the same decisions and settings give the same trees."""
        columns = known.rows.shape[1]
        rows, targets = _with(known.rows, known.choices), known.costs
        made = cls(choices, columns, fit(rows, targets, settings))
        for _ in range(_longest(known.last) - 1):
            best = made.predict(known.rows).min(axis=1).astype(np.float32)
            # A cost that was reached can be reached again: the prediction counts if it is lower.
            later = np.minimum(np.append(best[1:], np.float32(0)), known.costs)
            targets = np.where(known.last, known.costs, later)
            made = cls(choices, columns, fit(rows, targets, settings))
        return made

    def nodes(self) -> Mapping[str, Sequence[Any]]:
        """Give the trees for ONNX with an output for each choice: in each the last column is that choice."""
        roots = self.trees.roots()
        if not roots:
            return {}
        made = [(_fixed(root, self.columns, choice), choice) for choice in range(self.choices) for root in roots]
        return nodes_of([root for root, _ in made], [choice for _, choice in made])


def _with(rows: Matrix, choices: npt.NDArray[Any]) -> Matrix:
    return np.column_stack([rows, choices.astype(np.float32)])


def _longest(last: npt.NDArray[np.bool_]) -> int:
    ends = np.flatnonzero(last)
    return int(np.diff(ends, prepend=-1).max()) if len(ends) else 1


def _fixed(node: Mapping[str, Any], column: int, value: float) -> Mapping[str, Any]:
    """Give a tree without its questions about a column whose value is known."""
    while node.get("split_feature") == column:
        node = node["left_child" if value <= node["threshold"] else "right_child"]
    if "split_feature" not in node:
        return node
    children = {side: _fixed(node[side], column, value) for side in ("left_child", "right_child")}
    return {**node, **children}


def rows_of(observations: Any, features: Sequence[TensorSpec]) -> Matrix:
    """Give features as columns, those of a vector side by side; shape [n, columns]."""
    count = len(observations)
    return np.concatenate([observations[spec.name].reshape(count, -1) for spec in features], axis=1).astype(np.float32)


def to_onnx(costs: Costs, default: int, least: float) -> bytes:
    """Give the model: ``observation``, float[batch, columns], to ``scores``, float[batch, choices].

    Score = cost saved. The default gets ``least`` on top, so another choice must save more than that.

    Args:
        costs: the predictions.
        default: the column that is the default choice.
        least: in the task's unit.

    """
    graph = OnnxGraph()
    own = graph.node("Gather", ["observation", graph.constant([default], np.int64)], axis=1)
    is_own = graph.node("Equal", [own, graph.constant(np.arange(costs.choices))])
    lean = [graph.cast(is_own, "FLOAT"), graph.constant(least)]
    if costs.trees.nodes:
        predicted = graph.trees(["observation"], costs.choices, costs.nodes())
        graph.node("Sub", [graph.node("Mul", lean), predicted], "scores")
    else:
        graph.node("Mul", lean, "scores")
    inputs = {"observation": ("FLOAT", ["batch", costs.columns])}
    return graph.to_bytes(inputs, {"scores": ("FLOAT", ["batch", costs.choices])}, _OPSET, _IR_VERSION)


def config(features: Sequence[TensorSpec], advice: TensorSpec, description: str) -> str:
    """Give ``policy.toml``."""
    packed = ", ".join(
        f'{{name = "{spec.name}", type = "{spec.type.value}", shape = {list(spec.shape)}}}' for spec in features
    )
    return (
        f'backend = "onnx"\ndescription = "{description}"\n\n[head]\nadvice = "{advice.name}"\n'
        f'type = "{advice.type.value}"\n\n[settings.pack.observation]\nfeatures = [{packed}]\n'
    )
