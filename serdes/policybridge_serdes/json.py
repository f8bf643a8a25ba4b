"""SerDes `json`: for people, scripts and languages without a binary library.

Session form: one array with an entry per tensor. A tensor without −1 is the flat array of its elements in row-major
order; one with −1 is ``{"shape":[…],"data":[…]}``. Bytes are base64; NaN and the infinities are the strings "NaN",
"Infinity" and "-Infinity", as in protobuf's JSON. JSON has one NaN, floats have many: a NaN of another sign or payload
turns its tensor's elements into their bits, ``{"bits":[unsigned, …]}``.
Self-describing form: ``{"tensors":[spec, …],"values":session form}``.
"""

import base64
import binascii
from functools import lru_cache
from itertools import chain
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from policybridge_serdes.bitstream import parse_layout
from policybridge_serdes.contract import Codec
from policybridge_serdes.errors import InvalidError
from policybridge_serdes.specs import ElementType, Layout, TensorSpec, Values
from policybridge_serdes.values import shape_fits, tensor

_NON_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


class _Described(msgspec.Struct):
    tensors: msgspec.Raw
    values: msgspec.Raw


class JsonSerDes:
    """JSON text; see the module's text for the format."""

    def __init__(self) -> None:
        self._layout = lru_cache(maxsize=128)(_parse_tensors)
        self._decoder = msgspec.json.Decoder(_Described)

    def codec(self, layout: Layout) -> Codec:
        """Give the session form for ``layout``; integers or floats of one width take a shorter way."""
        return UniformCodec(layout) if _is_plain(layout) else MixedCodec(layout)

    def encode(self, values: Values, layout: Layout) -> bytes:
        """Encode one record behind its layout."""
        specs = msgspec.json.encode([spec.to_json() for spec in layout.specs])
        return b'{"tensors":%b,"values":%b}' % (specs, self.codec(layout).encode(values))

    def decode(self, data: bytes) -> tuple[Layout, Values]:
        """Decode a record and its layout."""
        try:
            described = self._decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidError(f'not {{"tensors":[…],"values":[…]}}: {error}') from error
        layout = self._layout(bytes(described.tensors))
        return layout, self.codec(layout).decode(bytes(described.values))


def _parse_tensors(specs: bytes) -> Layout:
    return parse_layout(b'{"tensors":%b}' % specs)


def _is_plain(layout: Layout) -> bool:
    return layout.uniform is not None and layout.uniform.kind in "iu"


class UniformCodec:
    """Integers of one type in fixed tensors: one conversion for the whole record."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._dtype = layout.specs[0].type.dtype
        self._counts = [spec.count for spec in layout.specs]
        ends = np.cumsum(self._counts).tolist()
        self._slices = [slice(end - count, end) for end, count in zip(ends, self._counts, strict=True)]
        self._decoder = msgspec.json.Decoder(list[list[int]])

    def encode(self, values: Values) -> bytes:
        """Encode one record."""
        flat = np.ndarray(sum(self._counts), self._dtype, values.tobytes()).tolist()
        return msgspec.json.encode([flat[part] for part in self._slices])

    def decode(self, data: bytes) -> Values:
        """Decode one record."""
        try:
            rows = self._decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidError(f"not an array with a flat array of integers per tensor: {error}") from error
        if [len(row) for row in rows] != self._counts:
            raise InvalidError(_count_message(self._layout, rows))
        try:
            flat = np.fromiter(chain.from_iterable(rows), self._dtype, sum(self._counts))
        except OverflowError as error:
            raise InvalidError(f"an element does not fit its {self._dtype}: {error}") from error
        return flat.view(self._layout.dtype) if flat.size else np.zeros(1, self._layout.dtype)


def _count_message(layout: Layout, rows: list[list[Any]]) -> str:
    if len(rows) != len(layout.specs):
        return f"{len(rows)} tensors came where the session has {len(layout.specs)}"
    spec, row = next((spec, row) for spec, row in zip(layout.specs, rows, strict=True) if len(row) != spec.count)
    return f"{spec} takes {spec.count} elements, {len(row)} came"


class MixedCodec:
    """Any layout, a tensor at a time."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._decoder = msgspec.json.Decoder(list[Any])

    def encode(self, values: Values) -> bytes:
        """Encode one record."""
        return msgspec.json.encode([_to_json(spec, tensor(spec, values)) for spec in self._layout.specs])

    def decode(self, data: bytes) -> Values:
        """Decode one record."""
        try:
            entries = self._decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidError(f"not an array with an entry per tensor: {error}") from error
        if len(entries) != len(self._layout.specs):
            raise InvalidError(f"{len(entries)} tensors came where the session has {len(self._layout.specs)}")
        values: Values = np.zeros(1, self._layout.dtype)
        for spec, entry in zip(self._layout.specs, entries, strict=True):
            values[spec.name][0] = _from_json(spec, entry)
        return values


def _to_json(spec: TensorSpec, array: npt.NDArray[Any]) -> object:
    elements = _elements_to_json(spec, array.reshape(-1))
    return {"shape": list(array.shape), "data": elements} if spec.varies else elements


def _elements_to_json(spec: TensorSpec, flat: npt.NDArray[Any]) -> object:
    if spec.type is ElementType.BYTES:
        return [base64.b64encode(item).decode("ascii") for item in flat]
    if flat.dtype.kind == "f" and not np.isfinite(flat).all():
        return _non_finite_to_json(flat)
    return flat.tolist()


def _non_finite_to_json(flat: npt.NDArray[Any]) -> object:
    bits = flat.view(f"<u{flat.itemsize}")
    canonical = np.array(np.nan, flat.dtype).view(bits.dtype)
    if (bits[np.isnan(flat)] != canonical).any():
        return {"bits": bits.tolist()}
    names = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return [names.get(str(item), item) for item in flat.tolist()]


def _from_json(spec: TensorSpec, entry: object) -> npt.NDArray[Any]:
    shape: tuple[int, ...] = spec.shape
    if spec.varies:
        shape, entry = _open_entry(spec, entry)
    flat = _elements_from_json(spec, entry)
    try:
        return flat.reshape(shape)
    except ValueError:
        raise InvalidError(f"{spec}: {flat.size} elements came for the shape {list(shape)}") from None


def _open_entry(spec: TensorSpec, entry: object) -> tuple[tuple[int, ...], object]:
    try:
        fields = msgspec.convert(entry, dict[str, Any])
        shape = msgspec.convert(fields["shape"], tuple[int, ...])
        data = fields["data"]
    except (msgspec.ValidationError, KeyError):
        raise InvalidError(f'{spec} varies: it comes as {{"shape":[…],"data":[…]}}') from None
    if not shape_fits(spec.shape, shape) or min(shape) < 0:
        raise InvalidError(f"{spec} was given a value of shape {list(shape)}")
    return shape, data


def _elements_from_json(spec: TensorSpec, entry: object) -> npt.NDArray[Any]:
    if isinstance(entry, dict) and spec.type.dtype.kind == "f" and entry.keys() == {"bits"}:
        bits = _numbers(spec, entry["bits"], np.dtype(f"<u{spec.type.dtype.itemsize}"))
        return bits.view(spec.type.dtype)
    if not isinstance(entry, list):
        raise InvalidError(f"{spec} comes as a flat array of elements")
    if spec.type.is_text:
        return _texts(spec, entry)
    return _numbers(spec, entry, spec.type.dtype)


def _numbers(spec: TensorSpec, entry: object, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    kinds = {"f": float | str, "b": bool}.get(dtype.kind, int)
    try:
        items = msgspec.convert(entry, list[kinds])  # type: ignore[valid-type]
        if dtype.kind == "f":
            items = [_NON_FINITE[item] if isinstance(item, str) else item for item in items]
        with np.errstate(over="raise"):
            return np.array(items, dtype)
    except (msgspec.ValidationError, KeyError, OverflowError, FloatingPointError) as error:
        raise InvalidError(f"{spec}: an element is no {dtype}: {error}") from error


def _texts(spec: TensorSpec, entry: list[object]) -> npt.NDArray[Any]:
    array = np.empty(len(entry), object)
    try:
        texts = msgspec.convert(entry, list[str])
        if spec.type is ElementType.BYTES:
            array[:] = [base64.b64decode(text, validate=True) for text in texts]
        else:
            array[:] = texts
    except (msgspec.ValidationError, binascii.Error, ValueError) as error:
        raise InvalidError(f"{spec}: an element is no {spec.type.value}: {error}") from error
    return array
