"""Gymnasium's spaces of a compiler's features."""

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt

from policybridge_serdes import Layout, TensorSpec, Values

Observation = dict[str, npt.NDArray[Any]]
"""The features by name. LLVM's shapes ``[1, n]`` and ``[n]`` are both ``(n,)`` here."""


class Features:
    """A compiler's features as a space of type Dict."""

    def __init__(self, layout: Layout) -> None:
        self.space = gymnasium.spaces.Dict({spec.name: _box(spec) for spec in layout.specs})
        self._shapes = {spec.name: _shape(spec) for spec in layout.specs}

    def read(self, values: Values) -> Observation:
        """Give an observation's features as arrays of their own, by name.

        Args:
            values: one record of the layout.

        """
        return {name: values[name].reshape(shape).copy() for name, shape in self._shapes.items()}


def _box(spec: TensorSpec) -> gymnasium.Space[Any]:
    kind = spec.type.dtype
    if kind.kind == "b":
        return gymnasium.spaces.MultiBinary(_shape(spec))
    # The compiler promises no bounds, so the whole range of the type is allowed.
    least, most = (-np.inf, np.inf) if kind.kind != "f" else (np.finfo(kind).min, np.finfo(kind).max)
    return gymnasium.spaces.Box(least, most, _shape(spec), kind.type)


def _shape(spec: TensorSpec) -> tuple[int, ...]:
    return spec.shape[1:] if len(spec.shape) > 1 and spec.shape[0] == 1 else spec.shape or (1,)
