"""From a column to a feature of another type or a fixed shape, by the configuration."""

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError, TooLargeError
from policybridge_serdes import ElementType, TensorSpec
from policybridge_serdes.specs import VARIES
from policybridge_serdes.values import fit
from policybridge_server.mlbridge.grpc.columns import Column
from policybridge_server.mlbridge.grpc.config import FeatureConfig

Array = npt.NDArray[Any]


class Shaper:
    """Makes one feature of the column that it is bound to.

    Args:
        name: the feature's.
        column: the source of its values.
        config: the operator's conversion.
        limit: the largest feature in bytes.

    Raises:
        InvalidError: the column cannot be converted; the message has the reason.

    """

    def __init__(self, name: str, column: Column, config: FeatureConfig, limit: int) -> None:
        self._config = config
        self._limit = limit
        kind = column.type if config.type is None else ElementType(config.type)
        _check_cast(name, column, kind)
        self._flat = TensorSpec(name, kind, (VARIES,))
        self._shape = None if config.shape is None else _checked_shape(name, column, config.shape)
        self.spec = TensorSpec(name, kind, self._shape or ((VARIES,) if column.repeats else (1,)))
        self._cast = kind is not column.type
        self._scalar = not column.repeats
        self._split = bool(column.splits)

    @property
    def changes(self) -> bool:
        """Whether the feature differs from the column."""
        return self._cast or self._shape is not None

    def __call__(self, value: Any, splits: Sequence[npt.NDArray[np.int64]]) -> Array:
        """Make the feature; ``splits`` are the column's row splits, outermost first.

        Raises:
            InvalidError: the value is out of the type's range, or has another shape and may not be padded or cut.
            TooLargeError: padding would make it too large.

        """
        if self._scalar:
            return fit(self.spec, np.full(self.spec.shape, value))
        array: Array = fit(self._flat, value) if self._cast else value
        if self._shape is None:
            return array
        if not self._split:
            return self._to_length(array, prod(self._shape)).reshape(self._shape)
        for row_splits, width in zip(reversed(splits), reversed(self._shape[1:]), strict=True):
            array = self._to_rows(array, row_splits, width)
        return array if self._shape[0] == VARIES else self._to_length(array, self._shape[0])

    def _to_length(self, array: Array, length: int) -> Array:
        if len(array) == length or length < 0:
            return array
        self._check(len(array), len(array), length)
        made = self._blank((length, *array.shape[1:]))
        kept = min(len(array), length)
        made[:kept] = array[:kept]
        return made

    def _to_rows(self, array: Array, splits: npt.NDArray[np.int64], width: int) -> Array:
        sizes = np.diff(splits)
        if bool((sizes == width).all()):
            return array.reshape(len(sizes), width, *array.shape[1:])
        self._check(int(sizes.min()), int(sizes.max()), width)
        made = self._blank((len(sizes), width, *array.shape[1:]))
        there = np.arange(width) < sizes[:, None]
        made[there] = array[(splits[:-1, None] + np.arange(width))[there]]
        return made

    def _check(self, shortest: int, longest: int, wanted: int) -> None:
        if shortest < wanted and not self._config.pad:
            raise InvalidError(f"{self.spec}: {self._config.field} has {shortest} elements, and `pad` is not set")
        if longest > wanted and not self._config.truncate:
            raise InvalidError(f"{self.spec}: {self._config.field} has {longest} elements, and `truncate` is not set")

    def _blank(self, shape: tuple[int, ...]) -> Array:
        kind = self._flat.type
        size = prod(shape) * kind.dtype.itemsize
        if size > self._limit:
            raise TooLargeError(f"{self.spec}: padded to {size} bytes; at most {self._limit} are taken")
        return np.full(shape, {ElementType.STRING: "", ElementType.BYTES: b""}.get(kind, 0), kind.dtype)


def _check_cast(name: str, column: Column, kind: ElementType) -> None:
    if kind is column.type:
        return
    if column.type.is_text or (column.type.dtype.kind == "f" and kind.dtype.kind != "f"):
        raise InvalidError(f"bind {name!r}: {column.path} is {column.type.value}, which cannot be cast to {kind.value}")


def _checked_shape(name: str, column: Column, shape: list[int]) -> tuple[int, ...]:
    dimensions = tuple(shape)
    if column.splits:
        if len(dimensions) != column.levels or VARIES in dimensions[1:]:
            raise InvalidError(
                f"bind {name!r}: {column.path} repeats on {column.levels} levels; its shape has as many dimensions, "
                f"and only the first may be −1, not {shape}"
            )
    elif column.repeats:
        if VARIES in dimensions and dimensions != (VARIES,):
            raise InvalidError(f"bind {name!r}: the shape of {column.path} is fixed or [-1], not {shape}")
    elif prod(dimensions) != 1:
        raise InvalidError(f"bind {name!r}: {column.path} is one value, which has no shape {shape}")
    return dimensions
