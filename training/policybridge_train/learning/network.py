"""Small networks for yes/no decisions, as weights in numpy and as an ONNX model with a score for each answer.

The score of "no" is 0. The score of "yes" is the network's output plus a lean towards the compiler's own decision, so
that a network of zeros decides like the compiler, and training begins there.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError
from policybridge_serdes import TensorSpec
from policybridge_train.onnx_file import OnnxGraph
from policybridge_train.tasks.task import Task
from policybridge_train.trajectories.trajectory import Trajectory

Floats = npt.NDArray[np.float32]

_IR_VERSION: Final = 10
_OPSET: Final = 17
_FARTHEST: Final = 5.0
"""Standard deviations from the mean at which inputs are clipped: LLVM's bonuses of 15,000 are beyond all others."""

_LEAST: Final = 1e-3
"""The least mean square of an observation's inputs."""


@dataclass(frozen=True, eq=False)
class Scaling:
    """How features become inputs: sign and logarithm of 1 + |x|, standardised, clipped, scaled to a mean square of 1.

    Without the last step a change of the weights would change the decisions about large functions first, which are far
    from the mean in all features and cost the most.

    Attributes:
        mean: of the logarithms, shape [features].
        deviation: of the logarithms, above 0, shape [features].

    """

    mean: Floats
    deviation: Floats

    @classmethod
    def of(cls, rows: Floats) -> "Scaling":
        """Standardise by these rows, shape [n, features]; a feature that is always the same is left where it is."""
        logs = _logarithm(rows)
        deviation = logs.std(axis=0) if len(rows) else np.ones(rows.shape[1], np.float32)
        mean = logs.mean(axis=0) if len(rows) else np.zeros(rows.shape[1], np.float32)
        return cls(mean.astype(np.float32), np.where(deviation > 1e-3, deviation, 1).astype(np.float32))

    def __call__(self, rows: Floats) -> Floats:
        """Give the inputs of the network, shape [n, features]."""
        clipped = np.clip((_logarithm(rows) - self.mean) / self.deviation, -_FARTHEST, _FARTHEST)
        scaled: Floats = clipped / np.sqrt((clipped**2).mean(axis=1, keepdims=True) + _LEAST)
        return scaled.astype(np.float32)


def _logarithm(rows: Floats) -> Floats:
    made: Floats = (np.sign(rows) * np.log1p(np.abs(rows))).astype(np.float32)
    return made


class Layer(msgspec.Struct, frozen=True, eq=False):
    """A layer: ``weights`` of shape [sets, inputs, outputs], ``bias`` of shape [sets, 1, outputs]; see `Network`."""

    weights: Any
    bias: Any


@dataclass(frozen=True, eq=False)
class Network:
    """A network, or several of one shape among which a feature chooses.

    Attributes:
        features: the columns that it takes.
        default: the feature that is the compiler's own decision, one of ``features``; empty: there is no lean.
        lean: added to the score of "yes" where the compiler says yes, and taken off it where it says no.
        scaling: of the features.
        layers: with a tanh between them; the last one has one output.
        chosen_by: the feature, an int64, that modulo the number of sets says which set of weights decides; empty where
            there is one set.

    """

    features: Sequence[str]
    default: str
    lean: float
    scaling: Scaling
    layers: Sequence[Layer]
    chosen_by: str = ""

    def to_onnx(self) -> bytes:
        """Give the model: ``observation``, float[batch, features], to ``scores``, float[batch, 2]."""
        graph = OnnxGraph()
        score = self._score(graph)
        graph.node("Mul", [score, graph.constant(0.0)], "no")
        graph.node("Concat", ["no", score], "scores", axis=1)
        inputs: dict[str, tuple[str, list[int | str]]] = {"observation": ("FLOAT", ["batch", len(self.features)])}
        if self.chosen_by:
            inputs[self.chosen_by] = ("INT64", ["batch", 1])
        return graph.to_bytes(inputs, {"scores": ("FLOAT", ["batch", 2])}, _OPSET, _IR_VERSION)

    def _score(self, graph: OnnxGraph) -> str:
        made = graph.node("Unsqueeze", [self._scaled(graph), graph.constant([1], np.int64)])
        sets = len(self.layers[0].weights)
        chosen = graph.constant([0], np.int64)
        if self.chosen_by:
            chosen = graph.node("Squeeze", [graph.node("Mod", [self.chosen_by, graph.constant(sets, np.int64)]),
                                           graph.constant([1], np.int64)])  # fmt: skip
        for number, layer in enumerate(self.layers):
            made = graph.node("Tanh", [made]) if number else made
            weights, bias = (
                graph.node("Gather", [graph.constant(each), chosen]) for each in (layer.weights, layer.bias)
            )
            made = graph.node("Add", [graph.node("MatMul", [made, weights]), bias])
        made = graph.node("Squeeze", [made, graph.constant([1], np.int64)])
        if not self.default:
            return made
        column = graph.constant([self.features.index(self.default)], np.int64)
        own = graph.node("Gather", ["observation", column], axis=1)
        side = graph.node("Sub", [graph.node("Mul", [own, graph.constant(2.0)]), graph.constant(1.0)])
        return graph.node("Add", [made, graph.node("Mul", [side, graph.constant(self.lean)])])

    def _scaled(self, graph: OnnxGraph) -> str:
        size = graph.node("Log", [graph.node("Add", [graph.node("Abs", ["observation"]), graph.constant(1.0)])])
        signed = graph.node("Mul", [graph.node("Sign", ["observation"]), size])
        centred = graph.node("Sub", [signed, graph.constant(self.scaling.mean)])
        scaled = graph.node("Div", [centred, graph.constant(self.scaling.deviation)])
        clipped = graph.node("Clip", [scaled, graph.constant(-_FARTHEST), graph.constant(_FARTHEST)])
        square = graph.node("ReduceMean", [graph.node("Mul", [clipped, clipped])], axes=[1], keepdims=1)
        root = graph.node("Sqrt", [graph.node("Add", [square, graph.constant(_LEAST)])])
        return graph.node("Div", [clipped, root])

    def config(self, task: Task, description: str) -> str:
        """Give ``policy.toml``."""
        features = ", ".join(f'"{name}"' for name in self.features)
        # Compilers that send no such feature are answered by the first set.
        fill = f"[fill]\n{self.chosen_by} = 0\n\n" if self.chosen_by else ""
        return (
            f'backend = "onnx"\ndescription = "{description}"\n\n[head]\nadvice = "{task.advice.name}"\n\n{fill}'
            f"[settings.pack.observation]\nfeatures = [{features}]\n"
        )


def yes_no_features(task: Task) -> list[str]:
    """Give the features of a task of yes/no decisions, each one int64.

    Raises:
        InvalidError: the task is another one.

    """
    if task.advice.type.dtype.kind not in "iu" or not task.advice.fixed or task.advice.count != 1 or not task.default:
        raise InvalidError(
            f"these networks answer yes or no beside a compiler's own decision; {task.name} asks otherwise"
        )
    wrong = [spec for spec in task.features if not _is_int64(spec)]
    if wrong:
        raise InvalidError(f"these networks take features of one int64 each; {task.name} has {wrong[0]}")
    return [spec.name for spec in task.features]


def _is_int64(spec: TensorSpec) -> bool:
    return spec.fixed and spec.count == 1 and spec.type.value == "int64_t"


def inputs_of(trajectories: Sequence[Trajectory], features: Sequence[str]) -> Floats:
    """Give the features of all decisions, one after another, shape [n, features]."""
    found = [np.zeros((0, len(features)), np.float32), *(each.columns(features) for each in trajectories if len(each))]
    return np.concatenate(found)
