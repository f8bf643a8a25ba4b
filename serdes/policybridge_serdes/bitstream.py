"""SerDes `bitstream`: raw little-endian tensors one after another, as in LLVM's interactive protocol.

Session form, tensor by tensor in the layout's order, no padding: for each dimension of −1 its size as uint64; then
the elements in row-major order. Elements of bytes and string: all their lengths as uint32, then their bytes.
Self-describing form: ``{"tensors":[spec, …]}`` in LLVM's JSON, a newline, then the session form.
"""

import math
from collections.abc import Iterator
from typing import Any, Final, cast

import msgspec
import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError
from policybridge_serdes.checks import Prepared, check_bool, decode_json, fill_shape, remember, texts_to_array
from policybridge_serdes.contract import Codec, LimitedSerDes
from policybridge_serdes.limits import LARGE, UNLIMITED, Buffer, MessageLimits
from policybridge_serdes.specs import VARIES, ElementType, Layout, SpecFields, TensorSpec, Values
from policybridge_serdes.values import bytes_of, tensor

_SIZE = np.dtype("<u8")
_LENGTH = np.dtype("<u4")


class _Tensors(msgspec.Struct):
    tensors: list[SpecFields]


_TENSORS: Final = msgspec.json.Decoder(_Tensors)


class BitstreamSerDes(LimitedSerDes):
    """LLVM's bytes; the module's docstring describes the format."""

    takes_views = True

    def __init__(self, limits: MessageLimits = UNLIMITED) -> None:
        super().__init__(limits)
        self._prepare = remember(self._prepare_header)

    def codec(self, layout: Layout) -> Codec:
        """Make the codec for ``layout``."""
        return PackedCodec(layout) if layout.fixed else VaryingCodec(layout, self._limits)

    def encode(self, values: Values, layout: Layout) -> bytes:
        """Encode the layout, then the record."""
        header = msgspec.json.encode({"tensors": [spec.to_json() for spec in layout.specs]})
        return header + b"\n" + self.codec(layout).encode(values)

    def decode(self, data: Buffer) -> tuple[Layout, Values]:
        """Decode a record and its layout."""
        header, newline, payload = _split(data) if len(data) > LARGE else bytes(data).partition(b"\n")
        if not newline:
            raise InvalidError('a self-describing bitstream starts with one line {"tensors":[…]}; no line ends')
        layout, codec = self._prepare(header)
        return layout, codec.decode(payload)

    def _prepare_header(self, header: bytes) -> Prepared:
        layout = parse_layout(header, self._limits)
        return layout, self.codec(layout)


def _split(data: Buffer) -> tuple[bytes, bytes, bytes]:
    """Give the first line of a large message, its newline, and the bytes after it as a view."""
    header, newline, _ = bytes(data[:LARGE]).partition(b"\n")
    if not newline:
        return bytes(data).partition(b"\n")
    # The codecs of this SerDes read a view.
    return header, newline, cast("bytes", memoryview(data)[len(header) + 1 :])


def parse_layout(line: bytes, limits: MessageLimits) -> Layout:
    """Read the line ``{"tensors":[spec, …]}``.

    Raises:
        InvalidError: the line is malformed.
        TooLargeError: it names more features than the limits allow.

    """
    fields = decode_json(_TENSORS, line, "a line of tensor specs")
    limits.check_features(len(fields.tensors))
    return Layout.from_json(fields.tensors)


class PackedCodec:
    """Fixed tensors: the message is the packed record itself."""

    takes_views = True

    def __init__(self, layout: Layout) -> None:
        self._dtype = layout.dtype
        self._size = layout.size
        self._bools = [spec for spec in layout.specs if spec.type is ElementType.BOOL]

    def encode(self, values: Values) -> bytes:
        """Return the record's bytes."""
        return values.tobytes()

    def decode(self, data: Buffer) -> Values:
        """View the bytes as a record."""
        if len(data) != self._size:
            raise InvalidError(f"{len(data)} bytes came where the tensors take {self._size}")
        values: Values = np.ndarray(1, self._dtype, data)
        for spec in self._bools:
            check_bool(spec, tensor(spec, values))
        return values


class VaryingCodec:
    """Any layout: the message is tensor after tensor; the sizes of a tensor's varying dimensions precede it."""

    takes_views = True

    def __init__(self, layout: Layout, limits: MessageLimits) -> None:
        self._layout = layout
        self._limits = limits

    def encode(self, values: Values) -> bytes:
        """Encode one record."""
        return b"".join(self.pieces(values))

    def pieces(self, values: Values) -> Iterator[Buffer]:
        """Encode one record in pieces; numbers of a contiguous tensor are a view of it."""
        for spec in self._layout.specs:
            yield from _encode_tensor(spec, tensor(spec, values))

    def decode(self, data: Buffer) -> Values:
        """Decode one record. Its fixed tensors are copies; the others are views of ``data``."""
        values: Values = np.zeros(1, self._layout.dtype)
        offset = 0
        for spec in self._layout.specs:
            array, offset = _decode_tensor(spec, data, offset, self._limits)
            values[spec.name][0] = array
        if offset != len(data):
            raise InvalidError(f"{len(data) - offset} bytes follow the last tensor, {self._layout.specs[-1]}")
        return values


def _encode_tensor(spec: TensorSpec, array: npt.NDArray[Any]) -> tuple[bytes, Buffer]:
    sizes = [size for want, size in zip(spec.shape, array.shape, strict=True) if want == VARIES]
    return np.array(sizes, _SIZE).tobytes(), _encode_elements(spec, array)


def _encode_elements(spec: TensorSpec, array: npt.NDArray[Any]) -> Buffer:
    if not spec.type.is_text:
        return bytes_of(array)
    texts = [text.encode() if isinstance(text, str) else text for text in array.flat]
    return np.array([len(text) for text in texts], _LENGTH).tobytes() + b"".join(texts)


def _decode_tensor(spec: TensorSpec, data: Buffer, offset: int, limits: MessageLimits) -> tuple[npt.NDArray[Any], int]:
    sizes = _view(spec, data, _SIZE, spec.shape.count(VARIES), offset)
    offset += sizes.nbytes
    shape = fill_shape(spec, sizes.tolist())
    if spec.type.is_text:
        limits.check_values(math.prod(shape))
        return _decode_texts(spec, data, shape, offset)
    array = _view(spec, data, spec.type.dtype, math.prod(shape), offset)
    if spec.type is ElementType.BOOL:
        check_bool(spec, array)
    return array.reshape(shape), offset + array.nbytes


def _decode_texts(spec: TensorSpec, data: Buffer, shape: tuple[int, ...], offset: int) -> tuple[npt.NDArray[Any], int]:
    lengths = _view(spec, data, _LENGTH, math.prod(shape), offset)
    offset += lengths.nbytes
    ends = offset + np.cumsum(lengths, dtype=np.int64)
    end = int(ends[-1]) if ends.size else offset
    if end > len(data):
        raise InvalidError(f"{spec}: its strings take {end - offset} bytes, {len(data) - offset} are left")
    starts = ends - lengths
    texts = [bytes(data[start:stop]) for start, stop in zip(starts.tolist(), ends.tolist(), strict=True)]
    return texts_to_array(spec, texts, shape), end


def _view(spec: TensorSpec, data: Buffer, dtype: np.dtype[Any], count: int, offset: int) -> npt.NDArray[Any]:
    # Checked before any allocation, so that a wrong size in a message costs no memory.
    if count * dtype.itemsize > len(data) - offset:
        raise InvalidError(f"{spec}: {count * dtype.itemsize} bytes announced, {len(data) - offset} are left")
    view: npt.NDArray[Any] = np.ndarray(count, dtype, data, offset)
    return view
