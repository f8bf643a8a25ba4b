"""A small network as plain arrays, which every framework's writer takes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Layer:
    """A linear layer: ``x @ weight.T + bias``."""

    weight: Array
    bias: Array


@dataclass(frozen=True)
class Network:
    """Linear layers with a ReLU between them; the input, ``observation``, is all features side by side.

    Attributes:
        advice: the output's name.
        limit: each feature is cut off at ± this.
        decide: the output is the number of the largest of the last layer's outputs, and not these themselves.

    """

    layers: Sequence[Layer]
    advice: str
    limit: float = math.inf
    decide: bool = True

    @property
    def sizes(self) -> list[int]:
        """Give the number of features, and of each layer's outputs."""
        return [self.layers[0].weight.shape[1], *(len(layer.bias) for layer in self.layers)]
