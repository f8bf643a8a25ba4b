"""A small network beside the compiler's own decision, for algorithms that learn by torch."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from policybridge_serdes import PolicyVersion
from policybridge_train.learning.network import Network, Scaling, yes_no_features
from policybridge_train.learning.perceptron import Perceptron
from policybridge_train.learning.record import Iteration
from policybridge_train.learning.training import Training

_STATE: Final = "state"


class LeaningNetwork:
    """Leans towards the compiler's own decision, so that it begins as the compiler.

    Args:
        training: the run.
        lean: the score of the compiler's own decision at the beginning.
        rate: of learning.
        description: of the versions that are published.

    Attributes:
        features: the columns of its inputs.
        network: to train.
        scaling: of the features.

    """

    def __init__(self, training: Training, lean: float, rate: float, description: str) -> None:
        self._training = training
        self._lean = lean
        self._description = description
        self.features = yes_no_features(training.task)
        count = len(self.features)
        self.network = Perceptron(count, rate, training.seed)
        self.scaling = Scaling(np.zeros(count, np.float32), np.ones(count, np.float32))

    def leaning(self, rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Give the score that the compiler's own decision has by itself, shape [n]."""
        own = rows[:, self.features.index(self._training.task.default)]
        found: npt.NDArray[np.float32] = (self._lean * (2 * own - 1)).astype(np.float32)
        return found

    def publish(self) -> PolicyVersion:
        """Publish it as it is."""
        task = self._training.task
        network = Network(self.features, task.default, self._lean, self.scaling, self.network.layers())
        return self._training.publish({"model.onnx": network.to_onnx()}, network.config(task, self._description))

    def finish(self, number: int, **more: npt.NDArray[Any]) -> Iteration:
        """Record, publish and validate what an iteration has learnt; ``more`` is for `restore`."""
        state = {"mean": self.scaling.mean, "deviation": self.scaling.deviation, **more}
        self._training.record.keep(number, _STATE, 0, self.network.save(state))
        version = self.publish()
        return self._training.finish(number, version, self._training.validate(version))

    def restore(self, number: int) -> dict[str, npt.NDArray[Any]]:
        """Continue from a recorded iteration; give the arrays kept with it."""
        kept = self.network.load(self._training.record.piece(number, _STATE))
        self.scaling = Scaling(kept["mean"], kept["deviation"])
        return kept
