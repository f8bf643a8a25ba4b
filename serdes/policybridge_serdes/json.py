"""SerDes `json`: for people, scripts and languages without a binary library.

Session form: one array with an entry per tensor. A tensor without −1 is the flat array of its elements in row-major
order; one with −1 is ``{"shape":[…],"data":[…]}``. Bytes are base64; NaN and the infinities are the strings "NaN",
"Infinity" and "-Infinity", as in protobuf's JSON. JSON has one NaN, floats have many: a NaN of another sign or payload
turns its tensor's elements into their bits, ``{"bits":[unsigned, …]}``.
Self-describing form: ``{"tensors":[spec, …],"values":session form}``.
"""

from itertools import chain
from typing import Annotated, Any, Final, Generic, Literal, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError
from policybridge_serdes.bitstream import parse_layout
from policybridge_serdes.checks import Prepared, decode_json, fill_shape, remember, reshape
from policybridge_serdes.contract import Codec, LimitedSerDes
from policybridge_serdes.limits import UNLIMITED, MessageLimits
from policybridge_serdes.specs import VARIES, ElementType, Layout, TensorSpec, Values
from policybridge_serdes.values import shape_fits, tensor

_T = TypeVar("_T")


class _Described(msgspec.Struct):
    tensors: msgspec.Raw
    values: msgspec.Raw


class _Bits(msgspec.Struct, Generic[_T], forbid_unknown_fields=True):
    bits: list[_T]


class _Open(msgspec.Struct, Generic[_T], forbid_unknown_fields=True):
    shape: list[Annotated[int, msgspec.Meta(ge=0)]]
    data: _T


_DESCRIBED: Final = msgspec.json.Decoder(_Described)


class JsonSerDes(LimitedSerDes):
    """JSON text; see the module's text for the format."""

    def __init__(self, limits: MessageLimits = UNLIMITED) -> None:
        super().__init__(limits)
        self._prepare = remember(self._prepare_tensors)

    def codec(self, layout: Layout) -> Codec:
        """Make the codec for ``layout``. Layouts of integers of one type and fixed size have a faster one."""
        plain = layout.uniform is not None and layout.uniform.kind in "iu"
        return UniformCodec(layout, self._limits) if plain else MixedCodec(layout, self._limits)

    def encode(self, values: Values, layout: Layout) -> bytes:
        """Encode the layout, then the record."""
        specs = msgspec.json.encode([spec.to_json() for spec in layout.specs])
        return b'{"tensors":%b,"values":%b}' % (specs, _encode_tensors(values, layout))

    def decode(self, data: bytes) -> tuple[Layout, Values]:
        """Decode a record and its layout."""
        described = decode_json(_DESCRIBED, data, '{"tensors":[…],"values":[…]}')
        layout, codec = self._prepare(bytes(described.tensors))
        return layout, codec.decode(bytes(described.values))

    def _prepare_tensors(self, specs: bytes) -> Prepared:
        layout = parse_layout(b'{"tensors":%b}' % specs, self._limits)
        return layout, self.codec(layout)


class UniformCodec:
    """Integers of one type in fixed tensors: one conversion for the whole record."""

    def __init__(self, layout: Layout, limits: MessageLimits) -> None:
        self._layout = layout
        self._limits = limits
        self._dtype = layout.specs[0].type.dtype
        self._counts = [spec.count for spec in layout.specs]
        ends = np.cumsum(self._counts).tolist()
        self._slices = [slice(end - count, end) for end, count in zip(ends, self._counts, strict=True)]
        self._decoder: msgspec.json.Decoder[list[list[int]]] = msgspec.json.Decoder(_list(_list(_integer(self._dtype))))

    def encode(self, values: Values) -> bytes:
        """Encode one record."""
        flat = np.ndarray(sum(self._counts), self._dtype, values.tobytes()).tolist()
        return msgspec.json.encode([flat[part] for part in self._slices])

    def decode(self, data: bytes) -> Values:
        """Decode one record."""
        self._limits.check_json(data)
        rows = decode_json(self._decoder, data, "an array with a flat array of integers per tensor")
        if [len(row) for row in rows] != self._counts:
            raise InvalidError(_count_message(self._layout, rows))
        try:
            flat = np.fromiter(chain.from_iterable(rows), self._dtype, sum(self._counts))
        except OverflowError as error:
            raise InvalidError(f"an element is no {self._dtype}: {error}") from error
        return flat.view(self._layout.dtype) if flat.size else np.zeros(1, self._layout.dtype)


def _integer(dtype: np.dtype[Any]) -> Any:
    # numpy refuses integers beyond 64 bits, but numpy 1 wraps those that a narrower or unsigned type cannot hold.
    if dtype == np.int64:
        return int
    limits = np.iinfo(dtype)
    return Annotated[int, msgspec.Meta(ge=int(limits.min), le=int(limits.max) if limits.max < 2**63 else None)]


def _list(element: Any) -> Any:
    # A function, because type checkers reject list[...] of a type made at run time.
    return list[element]


def _count_message(layout: Layout, rows: list[list[int]]) -> str:
    if len(rows) != len(layout.specs):
        return f"{len(rows)} tensors came where the session has {len(layout.specs)}"
    spec, row = next((spec, row) for spec, row in zip(layout.specs, rows, strict=True) if len(row) != spec.count)
    return f"{spec} takes {spec.count} elements, {len(row)} came"


class MixedCodec:
    """Any layout, one tensor at a time. The parser is given the type of each tensor's entry."""

    def __init__(self, layout: Layout, limits: MessageLimits) -> None:
        self._layout = layout
        self._limits = limits
        entries: Any = tuple(_entry_type(spec) for spec in layout.specs)
        self._decoder: msgspec.json.Decoder[tuple[Any, ...]] = msgspec.json.Decoder(tuple[entries])

    def encode(self, values: Values) -> bytes:
        """Encode one record."""
        return _encode_tensors(values, self._layout)

    def decode(self, data: bytes) -> Values:
        """Decode one record."""
        self._limits.check_json(data)
        entries = decode_json(self._decoder, data, "an array with an entry per tensor")
        values: Values = np.zeros(1, self._layout.dtype)
        for spec, entry in zip(self._layout.specs, entries, strict=True):
            values[spec.name][0] = _from_json(spec, entry)
        return values


def _encode_tensors(values: Values, layout: Layout) -> bytes:
    return msgspec.json.encode([_to_json(spec, tensor(spec, values)) for spec in layout.specs])


def _entry_type(spec: TensorSpec) -> Any:
    elements: Any = _elements_type(spec.type)
    return _Open[elements] if spec.varies else elements


def _elements_type(kind: ElementType) -> Any:
    named: dict[ElementType, Any] = {
        ElementType.BOOL: list[bool],
        ElementType.BYTES: list[bytes],
        ElementType.STRING: list[str],
    }
    if kind in named:
        return named[kind]
    if kind.dtype.kind != "f":
        return _list(_integer(kind.dtype))
    unsigned: Any = _integer(_unsigned(kind.dtype))
    return list[float | Literal["NaN", "Infinity", "-Infinity"]] | _Bits[unsigned]


def _unsigned(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(f"<u{dtype.itemsize}")


def _to_json(spec: TensorSpec, array: npt.NDArray[Any]) -> object:
    elements = _elements_to_json(array.reshape(-1))
    return {"shape": list(array.shape), "data": elements} if spec.varies else elements


def _elements_to_json(flat: npt.NDArray[Any]) -> object:
    if flat.dtype.kind != "f" or np.isfinite(flat).all():
        return flat.tolist()
    bits = flat.view(_unsigned(flat.dtype))
    canonical = np.array(np.nan, flat.dtype).view(bits.dtype)
    if (bits[np.isnan(flat)] != canonical).any():
        return {"bits": bits.tolist()}
    names = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return [names.get(str(item), item) for item in flat.tolist()]


def _from_json(spec: TensorSpec, entry: Any) -> npt.NDArray[Any]:
    if not spec.varies:
        return reshape(spec, _elements_from_json(spec, entry), spec.shape)
    if not shape_fits(spec.shape, entry.shape):
        raise InvalidError(f"{spec} was given a value of shape {entry.shape}")
    sizes = [size for want, size in zip(spec.shape, entry.shape, strict=True) if want == VARIES]
    return reshape(spec, _elements_from_json(spec, entry.data), fill_shape(spec, sizes))


def _elements_from_json(spec: TensorSpec, entry: Any) -> npt.NDArray[Any]:
    dtype = spec.type.dtype
    try:
        if isinstance(entry, _Bits):
            return np.array(entry.bits, _unsigned(dtype)).view(dtype)
        with np.errstate(over="raise"):
            return np.array(entry, dtype)  # numpy parses the names of NaN and the infinities as Python does
    except (OverflowError, FloatingPointError) as error:
        raise InvalidError(f"{spec}: an element is no {dtype}: {error}") from error
