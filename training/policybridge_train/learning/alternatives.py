"""Trees that predict the cost of each alternative, and the policy that follows them, as ONNX."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from policybridge_serdes import TensorSpec
from policybridge_train.learning.trees import Matrix, Trees, TreeSettings, fit, nodes_of
from policybridge_train.onnx_file import OnnxGraph

_OPSET: Final = 17
_IR_VERSION: Final = 8
_PARTS: Final = 8
"""Parts of the projects, each of which is predicted by trees that are fitted to the others."""


@dataclass(frozen=True, eq=False)
class Labels:
    """Units with the cost of each alternative.

    Attributes:
        rows: the features, shape [n, columns].
        costs: shape [n, alternatives]; infinite where an alternative was not tried.

    """

    rows: Matrix
    costs: Matrix

    @classmethod
    def none(cls, columns: int, count: int) -> "Labels":
        """Give the labels of no unit."""
        return cls(np.zeros((0, columns), np.float32), np.zeros((0, count), np.float32))

    @classmethod
    def joined(cls, parts: Sequence["Labels"]) -> "Labels":
        """Join labels, in their order."""
        rows, costs = (np.concatenate([getattr(part, name) for part in parts]) for name in ("rows", "costs"))
        return cls(rows, costs)

    def packed(self) -> bytes:
        """Encode the labels for the record."""
        return msgspec.msgpack.encode({"rows": self.rows.tobytes(), "costs": self.costs.tobytes()})

    @classmethod
    def unpacked(cls, data: bytes, columns: int, count: int) -> "Labels":
        """Decode labels."""
        read = msgspec.msgpack.decode(data)
        rows, costs = (np.frombuffer(read[name], np.float32) for name in ("rows", "costs"))
        return cls(rows.reshape(-1, columns), costs.reshape(-1, count))

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True)
class Chooser:
    """Chooses the alternative that is predicted to cost least, or ``best`` if none saves more than ``margin``.

    Attributes:
        count: the number of alternatives.
        best: the alternative with the least cost in sum.
        margin: above 0, in the unit of the costs.
        trees: by alternative, predict its cost minus that of ``best``; without trees ``best`` is always chosen.

    """

    count: int
    best: int = 0
    margin: float = 1.0
    trees: Mapping[int, Trees] = field(default_factory=dict)

    @classmethod
    def constant(cls, labels: Labels) -> "Chooser":
        """Choose the alternative with the least cost in sum."""
        return cls(labels.costs.shape[1], int(labels.costs.sum(axis=0, dtype=np.float64).argmin()))

    @classmethod
    def fitted(
        cls, labels: Labels, projects: Sequence[str], margins: Sequence[float], settings: TreeSettings
    ) -> "Chooser":
        """Fit trees; the margin is the one with the least cost by trees that have not seen the unit's project.

        The same labels and settings give the same trees. If no margin costs less than the constant, there are no trees.

        Args:
            labels: of all units.
            projects: the project of each unit.
            margins: to choose from.
            settings: of the trees of one alternative.

        """
        constant = cls.constant(labels)
        unseen = _unseen(labels, projects, constant.best, settings)
        costs = {margin: _cost(labels, _scores(unseen, constant.best, margin)) for margin in margins}
        margin = min(costs, key=lambda each: (costs[each], -each))
        if costs[margin] >= labels.costs[:, constant.best].sum(dtype=np.float64):
            return constant
        return cls(constant.count, constant.best, margin, _fitted(labels, constant.best, settings))

    def choose(self, rows: Matrix) -> npt.NDArray[np.int64]:
        """Give the alternative for each unit, shape [n]."""
        scores = _scores(_predicted(self.trees, rows, self.count), self.best, self.margin)
        chosen: npt.NDArray[np.int64] = scores.argmax(axis=1)
        return chosen

    def to_onnx(self, columns: int) -> bytes:
        """Give the model: ``observation``, float[batch, columns], to ``scores``, float[batch, alternatives].

        A score is the predicted saving; that of ``best`` is ``margin``.
        """
        graph = OnnxGraph()
        roots = [(root, choice) for choice, trees in sorted(self.trees.items()) for root in trees.roots()]
        if roots:
            nodes = nodes_of([root for root, _ in roots], [choice for _, choice in roots])
            predicted = graph.trees(["observation"], self.count, nodes)
        else:
            zeros = graph.constant(np.zeros((columns, self.count)))
            predicted = graph.node("MatMul", ["observation", zeros])
        lean = np.where(np.arange(self.count) == self.best, self.margin, 0.0)
        graph.node("Sub", [graph.constant(lean), predicted], "scores")
        inputs = {"observation": ("FLOAT", ["batch", columns])}
        return graph.to_bytes(inputs, {"scores": ("FLOAT", ["batch", self.count])}, _OPSET, _IR_VERSION)


def _fitted(labels: Labels, best: int, settings: TreeSettings) -> dict[int, Trees]:
    beyond = labels.costs - labels.costs[:, [best]]
    others = [choice for choice in range(beyond.shape[1]) if choice != best and np.isfinite(beyond[:, choice]).all()]
    return {choice: fit(labels.rows, beyond[:, choice], settings) for choice in others}


def _predicted(trees: Mapping[int, Trees], rows: Matrix, count: int) -> npt.NDArray[np.float64]:
    found = np.zeros((len(rows), count))
    for choice, each in trees.items():
        found[:, choice] = each.predict(rows)
    return found


def _unseen(labels: Labels, projects: Sequence[str], best: int, settings: TreeSettings) -> npt.NDArray[np.float64]:
    """Predict each unit by trees that have not seen its project, shape [n, alternatives]."""
    parts = _parts(labels, projects)
    found = np.zeros(labels.costs.shape)
    for part in np.unique(parts):
        inside = parts == part
        trees = _fitted(Labels(labels.rows[~inside], labels.costs[~inside]), best, settings)
        found[inside] = _predicted(trees, labels.rows[inside], labels.costs.shape[1])
    return found


def _parts(labels: Labels, projects: Sequence[str]) -> npt.NDArray[np.int64]:
    """Give the part of each unit: projects as wholes, parts of about the same cost."""
    names, of_unit = np.unique(np.array(projects, str), return_inverse=True)
    weights = np.bincount(of_unit, labels.costs[:, 0], len(names))
    part_of, filled = np.zeros(len(names), np.int64), np.zeros(_PARTS)
    for project in np.argsort(-weights, kind="stable"):
        part_of[project] = filled.argmin()
        filled[part_of[project]] += weights[project]
    return part_of[of_unit]


def _scores(predicted: npt.NDArray[np.float64], best: int, margin: float) -> npt.NDArray[np.float64]:
    scores = -predicted
    scores[:, best] = margin
    return scores


def _cost(labels: Labels, scores: npt.NDArray[np.float64]) -> float:
    chosen = np.take_along_axis(labels.costs, scores.argmax(axis=1)[:, None], axis=1)
    return float(chosen.sum(dtype=np.float64))


def config(features: Sequence[TensorSpec], advice: TensorSpec, description: str) -> str:
    """Give the ``policy.toml`` of a policy that decides this one kind."""
    names = ", ".join(f'"{spec.name}"' for spec in features)
    return (
        f'backend = "onnx"\ndescription = "{description}"\ndecides = ["{advice.name}"]\n\n'
        f'[head]\nadvice = "{advice.name}"\n\n[settings.pack.observation]\nfeatures = [{names}]\n'
    )
