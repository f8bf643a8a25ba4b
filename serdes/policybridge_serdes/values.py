"""Values of a Layout: packing Python and numpy values into records, joining records into batches, and unpacking."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError
from policybridge_core.text import is_unicode
from policybridge_serdes.limits import LARGE, Buffer
from policybridge_serdes.specs import ElementType, Layout, TensorSpec, Values

Row = Values | bytes
"""One observation or advice: a record or, for fixed layouts only, its packed bytes as received."""


def zeros(layout: Layout) -> Values:
    """Make one record of zeros. Varying dimensions have size 0; strings are empty."""
    values = np.zeros(1, layout.dtype)
    for spec in layout.specs:
        if not spec.fixed:
            shape = tuple(max(dim, 0) for dim in spec.shape)
            values[spec.name][0] = np.full(shape, _empty(spec.type), spec.type.dtype)
    return values


def _empty(kind: ElementType) -> Any:
    return {ElementType.BYTES: b"", ElementType.STRING: ""}.get(kind, 0)


def pack(layout: Layout, tensors: Mapping[str, npt.ArrayLike]) -> Values:
    """Copy named tensors into one record of ``layout``.

    Raises:
        InvalidError: a tensor is missing, or one does not fit its spec in type or shape.

    """
    missing = [name for name in layout.by_name if name not in tensors]
    if missing:
        raise InvalidError(f"no value for {', '.join(missing)}; given are {', '.join(tensors) or 'none'}")
    values = np.zeros(1, layout.dtype)
    for spec in layout.specs:
        fitting = fit(spec, tensors[spec.name])
        # Copy: the record refers to a varying tensor, and the caller may reuse its buffer.
        values[spec.name][0] = fitting if spec.fixed else fitting.copy()
    return values


def unpack(layout: Layout, values: Values) -> dict[str, npt.NDArray[Any]]:
    """Return the first record's tensors by name; they are views if the layout is fixed."""
    return {spec.name: tensor(spec, values) for spec in layout.specs}


def tensor(spec: TensorSpec, values: Values, row: int = 0) -> npt.NDArray[Any]:
    """Return one tensor of one record, in the shape that ``spec`` gives."""
    column = values[spec.name]
    held: npt.NDArray[Any] = column[row : row + 1].reshape(spec.shape) if spec.fixed else column[row]
    return held


def fit(spec: TensorSpec, value: npt.ArrayLike) -> npt.NDArray[Any]:
    """Convert ``value`` to an array of the spec's type and shape.

    For an integer type the value must be an integer in range. For a float type, integers and floats are rounded to the
    nearest float. A scalar is accepted for a tensor with one element.

    Raises:
        InvalidError: the value does not fit; the message names the spec and the value's type or shape.

    """
    array = _convert(spec, value)
    if array.ndim == 0 and spec.count == 1 and not spec.varies:
        array = array.reshape(spec.shape)
    if not shape_fits(spec.shape, array.shape):
        raise InvalidError(f"{spec} was given a value of shape {list(array.shape)}")
    return array


def shape_fits(wanted: Sequence[int], given: Sequence[int]) -> bool:
    """Tell whether shape ``given`` fits the declared shape ``wanted``, in which −1 accepts any size."""
    return len(wanted) == len(given) and all(want in (-1, size) for want, size in zip(wanted, given, strict=True))


def _convert(spec: TensorSpec, value: npt.ArrayLike) -> npt.NDArray[Any]:
    if spec.type.is_text:
        return _convert_text(spec, value)
    target = spec.type.dtype
    array = _as_array(spec, value)
    if array.dtype == target:
        return array
    if array.size == 0 and array.dtype == np.float64:
        return array.astype(target)
    if array.dtype.kind not in "biuf" or (array.dtype.kind == "f" and target.kind != "f"):
        raise InvalidError(f"{spec} was given {array.dtype} values")
    with np.errstate(over="ignore", invalid="ignore"):
        converted = array.astype(target)
    if not _in_range(array, converted):
        raise InvalidError(f"{spec} was given {array.dtype} values out of its range")
    return converted


def _as_array(spec: TensorSpec, value: npt.ArrayLike, dtype: type | None = None) -> npt.NDArray[Any]:
    try:
        array = np.asarray(value, dtype)
        if array.dtype.kind in "fO" and spec.type is ElementType.UINT64 and not isinstance(value, np.ndarray):
            # numpy turns a list with values beyond int64 into floats or objects; convert the exact integers instead.
            exact = np.asarray(value, object)
            if exact.size and all(type(item) is int and 0 <= item < 2**64 for item in exact.flat):
                array = exact.astype(spec.type.dtype)
    except (ValueError, OverflowError, RecursionError) as error:
        raise InvalidError(f"{spec} was given a value that is no tensor: {error}") from error
    return array


def _in_range(array: npt.NDArray[Any], converted: npt.NDArray[Any]) -> bool:
    if converted.dtype.kind == "f":
        return bool(np.array_equal(np.isinf(array), np.isinf(converted)))
    # A uint64 above int64's range wraps to a negative number, and only its sign shows the difference.
    return bool(np.array_equal(array, converted) and np.array_equal(array < 0, converted < 0))


def _convert_text(spec: TensorSpec, value: npt.ArrayLike) -> npt.NDArray[Any]:
    array = _as_array(spec, value, object)
    plain = np.empty(array.size, object)
    plain[:] = [_plain_text(spec, item) for item in array.flat]
    return plain.reshape(array.shape)


def _plain_text(spec: TensorSpec, item: object) -> bytes | str:
    # Convert numpy's own subclasses of str and bytes: encoders accept only the built-in types.
    if spec.type is ElementType.BYTES and isinstance(item, bytes):
        return bytes(item)
    if spec.type is ElementType.STRING and isinstance(item, str) and is_unicode(item):
        return str(item)
    raise InvalidError(f"{spec} was given {type(item).__name__} elements: {item!a:.60}")


def join(layout: Layout, rows: Sequence[Row]) -> Values:
    """Join single records into one batch of shape [len(rows)].

    Joining bytes is a thousand times cheaper than ``np.concatenate`` on records with many fields.
    """
    if layout.fixed:
        parts, size = cast("Sequence[bytes]", rows), layout.size * len(rows)
        return np.ndarray(len(rows), layout.dtype, b"".join(parts) if size <= LARGE else packed(parts, size))
    batch = np.empty(len(rows), layout.dtype)
    for index, row in enumerate(rows):
        batch[index] = row[0]
    return batch


def packed(parts: Sequence[Buffer], size: int) -> Buffer:
    """Join ``parts``, of ``size`` bytes in all. Large ones are not copied if there is one part alone.

    numpy copies several large parts, because other threads run meanwhile; nobody can write into the result.
    """
    if size <= LARGE:
        return b"".join(parts)
    if len(parts) == 1:
        return memoryview(parts[0]).toreadonly()
    joined = np.empty(size, np.uint8)
    end = 0
    for part in parts:
        piece = np.frombuffer(part, np.uint8)
        start, end = end, end + piece.size
        joined[start:end] = piece
    return joined.data.toreadonly()


def bytes_of(array: npt.NDArray[Any]) -> Buffer:
    """Give the bytes of an array in row-major order: a view if it is large and contiguous."""
    if array.nbytes <= LARGE or not array.flags.c_contiguous:
        return array.tobytes()
    return array.reshape(-1).view(np.uint8).data
