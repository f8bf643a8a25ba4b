"""The network of the algorithms that use torch: hidden layers of 40, 40 and 20 units, and one score as output."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import UnsupportedError
from policybridge_train.learning.network import Floats, Layer

_WIDTHS: Final = (40, 40, 20)
"""Hidden units by layer, as in Trofin and others, "MLGO: a Machine Learning Guided Compiler Optimizations Framework",
2021."""


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
