"""The network of the algorithms that use torch: hidden layers of 40, 40 and 20 units, and one score as output.

Its score counts alone, or is added to a fixed score of the compiler's own decision.
"""

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import UnsupportedError
from policybridge_serdes import PolicyVersion
from policybridge_train.learning.network import Floats, Layer, Network, Scaling, yes_no_features
from policybridge_train.learning.record import Iteration
from policybridge_train.learning.training import Training

_WIDTHS: Final = (40, 40, 20)
"""Hidden units by layer, as in Trofin and others, "MLGO: a Machine Learning Guided Compiler Optimizations Framework",
2021."""

_STATE: Final = "state"


class Perceptron:
    """Gives a score for each row of inputs. Before training, each score is 0.

    Args:
        inputs: the number of inputs.
        rate: Adam's learning rate.
        seed: seeds the initial weights and the order of the rows.

    Raises:
        UnsupportedError: torch is not installed.

    """

    def __init__(self, inputs: int, rate: float, seed: int) -> None:
        try:
            import torch  # noqa: PLC0415 - installed only for these algorithms
        except ImportError as error:
            raise UnsupportedError("this algorithm needs torch: pip install 'policybridge[torch]'") from error
        self.torch: Any = torch
        torch.manual_seed(seed)
        sizes = (inputs, *_WIDTHS)
        layers: list[Any] = []
        for index, outputs in enumerate(_WIDTHS):
            layers += [torch.nn.Linear(sizes[index], outputs), torch.nn.Tanh()]
        last = torch.nn.Linear(_WIDTHS[-1], 1)
        torch.nn.init.zeros_(last.weight)
        torch.nn.init.zeros_(last.bias)
        self.module = torch.nn.Sequential(*layers, last)
        self._rate = rate
        self.optimizer = torch.optim.Adam(self.module.parameters(), rate)
        self._generator = torch.Generator().manual_seed(seed)

    def batches(self, count: int, size: int) -> Sequence[Any]:
        """Give the indices of ``count`` rows in a new random order, in batches of ``size``."""
        found: Sequence[Any] = self.torch.randperm(count, generator=self._generator).split(size)
        return found

    def slow_down(self, factor: float) -> None:
        """Set the learning rate to the initial rate divided by ``factor``."""
        for group in self.optimizer.param_groups:
            group["lr"] = self._rate / factor

    def step(self, loss: Any) -> None:
        """Take one optimizer step on a loss."""
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def imitate(
        self,
        inputs: Floats,
        lean: Floats,
        answers: npt.NDArray[np.bool_],
        epochs: int,
        batch: int,
    ) -> None:
        """Fit the scores: minimise the cross-entropy of ``answers`` and the logits ``lean`` + score.

        Shapes: ``inputs`` [n, features], ``lean`` and ``answers`` [n].
        """
        torch = self.torch
        given, leaning = torch.from_numpy(inputs), torch.from_numpy(lean)
        wanted = torch.from_numpy(answers.astype(np.float32))
        for _ in range(epochs):
            for some in self.batches(len(wanted), batch):
                score = self.module(given[some]).squeeze(1) + leaning[some]
                self.step(torch.nn.functional.binary_cross_entropy_with_logits(score, wanted[some]))

    def scores(self, inputs: Floats) -> Floats:
        """Give the scores, shape [n]."""
        with self.torch.no_grad():
            found: Floats = self.module(self.torch.from_numpy(inputs)).squeeze(1).numpy()
        return found

    def layers(self) -> list[Layer]:
        """Give the weights, for `Network`."""
        linear = [each for each in self.module if isinstance(each, self.torch.nn.Linear)]
        return [
            Layer(
                each.weight.detach().numpy().T[np.newaxis].copy(),
                each.bias.detach().numpy()[np.newaxis, np.newaxis].copy(),
            )
            for each in linear
        ]

    def save(self, more: Mapping[str, npt.NDArray[Any]]) -> bytes:
        """Serialize the state of training, and the arrays ``more`` of the caller."""
        state = {
            "module": self.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "generator": self._generator.get_state(),
            "more": {name: self.torch.from_numpy(np.array(value)) for name, value in more.items()},
        }
        data = BytesIO()
        self.torch.save(state, data)
        return data.getvalue()

    def load(self, data: bytes) -> dict[str, npt.NDArray[Any]]:
        """Restore the state of training from the bytes of `save`; give the caller's arrays."""
        state = self.torch.load(BytesIO(data), weights_only=True)
        self.module.load_state_dict(state["module"])
        self.optimizer.load_state_dict(state["optimizer"])
        self._generator.set_state(state["generator"])
        return {name: value.numpy() for name, value in state["more"].items()}


class LeaningNetwork:
    """Adds the network's score to a fixed one of the compiler's own decision, so that it begins as the compiler.

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
        """Record, publish and validate the network of an iteration; ``more`` is for `restore`."""
        state = {"mean": self.scaling.mean, "deviation": self.scaling.deviation, **more}
        self._training.record.keep(number, _STATE, 0, self.network.save(state))
        version = self.publish()
        return self._training.finish(number, version, self._training.validate(version))

    def restore(self, number: int) -> dict[str, npt.NDArray[Any]]:
        """Continue from a recorded iteration; give the arrays kept with it."""
        kept = self.network.load(self._training.record.piece(number, _STATE))
        self.scaling = Scaling(kept["mean"], kept["deviation"])
        return kept
