"""A small network as plain arrays, the input of every framework's writer."""

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
    """Linear layers with ReLU between them; the input ``observation`` holds all features in one row.

    Attributes:
        advice: the name of the output.
        limit: each feature is clipped to ± this value.
        decide: whether the output is the argmax of the last layer's outputs instead of these outputs.

    """

    layers: Sequence[Layer]
    advice: str
    limit: float = math.inf
    decide: bool = True

    @property
    def sizes(self) -> list[int]:
        """Return the number of features, then the number of outputs of each layer."""
        return [self.layers[0].weight.shape[1], *(len(layer.bias) for layer in self.layers)]
