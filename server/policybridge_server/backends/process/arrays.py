"""Records as bytes between the server and a policy's process. No pickle: replies are read as numbers and text.

A record type of fixed fields is sent as its bytes in memory. A field that varies is a numpy array for each record:
its type (3 characters), its dimensions, its elements; text is written with its length.
"""

import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import PolicyFailedError
from policybridge_serdes import Layout, Values

Fields = list[tuple[str, str, tuple[int, ...]]]
"""A record type: name, numpy's type and shape of each field; the type ``O`` stands for arrays that vary."""

_NUMBER: Final = struct.Struct("<Q")
_START: Final = struct.Struct("<3sB")
_TEXT: Final = {"str": b"STR", "bytes": b"BYT"}


def describe_fields(dtype: np.dtype[np.void]) -> Fields:
    """Describe a record type, as JSON can carry it."""
    fields: Any = dtype.fields
    described = []
    for name in dtype.names or ():
        kind = fields[name][0]
        described.append((name, kind.base.str if kind.base.kind != "O" else "O", kind.shape))
    return described


def make_dtype(fields: Sequence[tuple[str, str, tuple[int, ...]]]) -> np.dtype[np.void]:
    """Make the record type that `describe_fields` described."""
    return np.dtype([(name, kind, tuple(shape)) for name, kind, shape in fields])


def encode(values: Values) -> bytes:
    """Give the bytes of a batch of records."""
    if not values.dtype.hasobject:
        return values.tobytes()
    written = bytearray()
    for name in values.dtype.names or ():
        column = values[name]
        if column.dtype.kind != "O":
            written += column.tobytes()
        else:
            for array in column:
                _write(written, np.asarray(array))
    return bytes(written)


def decode(data: bytes, dtype: np.dtype[np.void], count: int) -> Values:
    """Read ``count`` records.

    Raises:
        PolicyFailedError: ``data`` is not this number of records of this type.

    """
    if not dtype.hasobject:
        if len(data) != count * dtype.itemsize:
            raise PolicyFailedError(f"the policy's process gave {len(data)} bytes for {count} records of {dtype}")
        return np.frombuffer(bytearray(data), dtype)
    reader, values = _Reader(data), np.empty(count, dtype)
    for name, kind, _ in describe_fields(dtype):
        column = values[name]
        if kind != "O":
            column[...] = np.frombuffer(reader.take(column.nbytes), column.dtype.base).reshape(column.shape)
        else:
            for row in range(count):
                column[row] = reader.array()
    reader.check_end()
    return values


def check_advice(values: Values, advice: Layout) -> Values:
    """Check arrays that vary against the specs of ``advice``.

    Raises:
        PolicyFailedError: one has another type or shape.

    """
    for spec in () if advice.fixed else advice.specs:
        for array in () if spec.fixed else values[spec.name]:
            shape_fits = len(array.shape) == len(spec.shape) and all(
                want in (-1, size) for want, size in zip(spec.shape, array.shape, strict=True)
            )
            kind = bytes if spec.type.value == "bytes" else str
            text_fits = not spec.type.is_text or all(type(each) is kind for each in array.flat)
            if array.dtype != spec.type.dtype or not shape_fits or not text_fits:
                raise PolicyFailedError(f"the policy's process gave {array.dtype}{list(array.shape)} for {spec}")
    return values


def _write(written: bytearray, array: npt.NDArray[Any]) -> None:
    text = array.dtype.kind == "O"
    first = array.flat[0] if text and array.size else ""
    kind = _TEXT[type(first).__name__] if text else array.dtype.str.encode()
    written += _START.pack(kind, array.ndim)
    for size in array.shape:
        written += _NUMBER.pack(size)
    if not text:
        written += array.tobytes()
        return
    for each in array.flat:
        element = each.encode() if isinstance(each, str) else each
        written += _NUMBER.pack(len(element))
        written += element


class _Reader:
    """Takes bytes from the front.

    Every method raises `PolicyFailedError` if the bytes end too early or are invalid.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) != size:
            raise PolicyFailedError("the policy's process gave too few bytes")
        self._at += size
        return taken

    def check_end(self) -> None:
        if self._at != len(self._data):
            raise PolicyFailedError("the policy's process gave too many bytes")

    def array(self) -> npt.NDArray[Any]:
        kind, ndim = _START.unpack(self.take(_START.size))
        shape = tuple(self._number() for _ in range(ndim))
        count = 1
        for size in shape:
            count *= size
        if count > len(self._data):
            raise PolicyFailedError("the policy's process gave too few bytes")
        if kind in _TEXT.values():
            return self._texts(count, is_str=kind == _TEXT["str"]).reshape(shape)
        try:
            dtype = np.dtype(kind.decode())
        except (TypeError, ValueError) as error:
            raise PolicyFailedError(f"the policy's process gave the type {kind!r}") from error
        if dtype.hasobject:
            raise PolicyFailedError(f"the policy's process gave the type {kind!r}")
        return np.frombuffer(bytearray(self.take(count * dtype.itemsize)), dtype).reshape(shape)

    def _number(self) -> int:
        number: int = _NUMBER.unpack(self.take(_NUMBER.size))[0]
        return number

    def _texts(self, count: int, *, is_str: bool) -> npt.NDArray[Any]:
        made = np.empty(count, object)
        for index in range(count):
            element = self.take(self._number())
            try:
                made[index] = element.decode() if is_str else element
            except UnicodeDecodeError as error:
                raise PolicyFailedError("the policy's process gave text that is no Unicode") from error
        return made
