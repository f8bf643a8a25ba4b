"""Values of a Layout: from plain Python and numpy into records, many into a batch, and back."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from policybridge_serdes.errors import InvalidError
from policybridge_serdes.specs import ElementType, Layout, TensorSpec, Values

Row = Values | bytes
"""One observation or advice: a record, or (fixed layouts alone) its packed bytes as they came."""


def zeros(layout: Layout) -> Values:
    """Give one record of zeros; varying dimensions are empty, strings too."""
    values = np.zeros(1, layout.dtype)
    for spec in layout.specs:
        if not spec.fixed:
            shape = tuple(max(dim, 0) for dim in spec.shape)
            values[spec.name][0] = np.full(shape, _empty(spec.type), spec.type.dtype)
    return values


def _empty(kind: ElementType) -> Any:
    return {ElementType.BYTES: b"", ElementType.STRING: ""}.get(kind, 0)


def pack(layout: Layout, tensors: Mapping[str, npt.ArrayLike]) -> Values:
    """Put named tensors into one record of ``layout``.

    Raises:
        InvalidError: a tensor is missing, or one does not fit its spec in type or shape.

    """
    missing = [name for name in layout.by_name if name not in tensors]
    if missing:
        raise InvalidError(f"no value for {', '.join(missing)}; given are {', '.join(tensors) or 'none'}")
    values = np.zeros(1, layout.dtype)
    for spec in layout.specs:
        values[spec.name][0] = fit(spec, tensors[spec.name])
    return values


def unpack(layout: Layout, values: Values) -> dict[str, npt.NDArray[Any]]:
    """Give the first record's tensors by name, as views where the layout is fixed."""
    return {spec.name: tensor(spec, values) for spec in layout.specs}


def tensor(spec: TensorSpec, values: Values, row: int = 0) -> npt.NDArray[Any]:
    """Give one tensor of one record, shape as in ``spec``."""
    column = values[spec.name]
    held: npt.NDArray[Any] = column[row : row + 1].reshape(spec.shape) if spec.fixed else column[row]
    return held


def fit(spec: TensorSpec, value: npt.ArrayLike) -> npt.NDArray[Any]:
    """Give ``value`` as an array of the spec's type and shape.

    Integers and floats are taken where the value survives unchanged (an int64 that is in an int32's range, an
    integer for a float); a scalar stands for a tensor with one element.

    Raises:
        InvalidError: it does not fit; the message names both sides.

    """
    array = _convert(spec, value)
    if array.ndim == 0 and spec.count == 1 and not spec.varies:
        array = array.reshape(spec.shape)
    if not shape_fits(spec.shape, array.shape):
        raise InvalidError(f"{spec} was given a value of shape {list(array.shape)}")
    return array


def shape_fits(wanted: Sequence[int], given: Sequence[int]) -> bool:
    """Whether a value of shape ``given`` may stand where ``wanted`` is declared (−1 takes any size)."""
    return len(wanted) == len(given) and all(want in (-1, size) for want, size in zip(wanted, given, strict=True))


def _convert(spec: TensorSpec, value: npt.ArrayLike) -> npt.NDArray[Any]:
    if spec.type.is_text:
        return _convert_text(spec, value)
    array = np.asarray(value)
    target = spec.type.dtype
    if array.dtype == target:
        return array
    if array.size == 0 and array.dtype == np.float64:
        return array.astype(target)
    if array.dtype.kind not in "biuf" or (array.dtype.kind == "f" and target.kind != "f"):
        raise InvalidError(f"{spec} was given {array.dtype} values")
    with np.errstate(over="ignore", invalid="ignore"):
        converted = array.astype(target)
    if target.kind != "f" and not _same(array, converted):
        raise InvalidError(f"{spec} was given {array.dtype} values out of its range")
    return converted


def _same(array: npt.NDArray[Any], converted: npt.NDArray[Any]) -> bool:
    # A uint64 above int64's range wraps to a negative number that compares unequal only by its sign.
    return bool(np.array_equal(array, converted) and np.array_equal(array < 0, converted < 0))


def _convert_text(spec: TensorSpec, value: npt.ArrayLike) -> npt.NDArray[Any]:
    array = np.asarray(value, dtype=object)
    wanted = bytes if spec.type is ElementType.BYTES else str
    wrong = next((item for item in array.flat if not isinstance(item, wanted)), None)
    if wrong is not None:
        raise InvalidError(f"{spec} was given {type(wrong).__name__} elements")
    return array


def join(layout: Layout, rows: Sequence[Row]) -> Values:
    """Make one batch, shape [len(rows)], of single records.

    Joining bytes is a thousand times cheaper than ``np.concatenate`` on records of many fields.
    """
    if layout.fixed:
        return np.ndarray(len(rows), layout.dtype, b"".join(cast("Sequence[bytes]", rows)))
    batch = np.empty(len(rows), layout.dtype)
    for index, row in enumerate(rows):
        batch[index] = row[0]
    return batch
