"""SerDes `protobuf`: the messages Tensors (session form) and DescribedTensors of policybridge/v1/tensor.proto."""

import math
from collections.abc import Sequence
from itertools import islice
from typing import Any, Final, TypeVar, cast

import numpy as np
import numpy.typing as npt
from google.protobuf.message import DecodeError, Message

from policybridge.v1 import tensor_pb2 as pb
from policybridge_core.errors import InvalidError
from policybridge_serdes.bitstream import PackedCodec
from policybridge_serdes.checks import Prepared, check_bool, fill_shape, remember, reshape, texts_to_array
from policybridge_serdes.contract import Codec, LimitedSerDes, decode_view
from policybridge_serdes.limits import LARGE, UNLIMITED, Buffer, MessageLimits
from policybridge_serdes.protobuf_fields import check_message, divide, owned
from policybridge_serdes.specs import VARIES, ElementType, Layout, Signature, TensorSpec, Values
from policybridge_serdes.values import packed, tensor

_TO_PB: Final[dict[ElementType, pb.ElementType.ValueType]] = {
    kind: pb.ElementType.Value(f"ELEMENT_TYPE_{kind.name}") for kind in ElementType
}
_FROM_PB: Final = {number: kind for kind, number in _TO_PB.items()}


class ProtobufSerDes(LimitedSerDes):
    """Protobuf messages; policybridge/v1/tensor.proto describes them."""

    takes_views = True

    def __init__(self, limits: MessageLimits = UNLIMITED) -> None:
        super().__init__(limits)
        self._prepare = remember(self._prepare_layout)

    def codec(self, layout: Layout) -> Codec:
        """Make the codec for ``layout``."""
        return PackedTensorsCodec(layout) if layout.fixed else TensorsCodec(layout, self._limits)

    def encode(self, values: Values, layout: Layout) -> bytes:
        """Encode the layout and the record."""
        tensors = pb.Tensors.FromString(self.codec(layout).encode(values))
        return pb.DescribedTensors(layout=layout_to_pb(layout), values=tensors).SerializeToString()

    def decode(self, data: Buffer) -> tuple[Layout, Values]:
        """Decode a record and its layout."""
        found = _messages(pb.DescribedTensors, data, ("layout", "values"))
        if len(found) < 2:
            raise InvalidError("a DescribedTensors lacks its layout or its values")
        layout, codec = self._prepare(bytes(found["layout"]))
        return layout, decode_view(codec, found["values"])

    def _prepare_layout(self, data: bytes) -> Prepared:
        tensors = parse(pb.Layout, data).tensors
        self._limits.check_features(len(tensors))
        layout = Layout.of(spec_from_pb(spec) for spec in tensors)
        return layout, self.codec(layout)


_M = TypeVar("_M", bound=Message)


def parse(kind: type[_M], data: Buffer) -> _M:
    """Parse a message.

    Raises:
        InvalidError: the bytes are not a message of this kind.
        TooLargeError: they are made of too many parts.

    """
    check_message(kind.DESCRIPTOR, data)
    try:
        return kind.FromString(cast("bytes", data))  # it takes views, too
    except DecodeError as error:
        raise InvalidError(f"not a {kind.DESCRIPTOR.full_name}: {error}") from error


def _messages(kind: type[Message], data: Buffer, names: Sequence[str]) -> dict[str, Buffer]:
    """Give those message fields that a message has, each serialized; of a large message as views of ``data``."""
    if len(data) <= LARGE:
        message = parse(kind, data)
        return {name: getattr(message, name).SerializeToString() for name in names if message.HasField(name)}
    numbers = {name: kind.DESCRIPTOR.fields_by_name[name].number for name in names}
    _, found = divide(kind.DESCRIPTOR, data, numbers.values())
    by_name = {name: [part for given, part in found if given == number] for name, number in numbers.items()}
    # To join serialized messages is to merge them.
    return {name: packed(parts, sum(map(len, parts))) for name, parts in by_name.items() if parts}


def _parts(data: Buffer) -> tuple[Sequence[Buffer], Sequence[int]]:
    """Give the data and the sizes of a Tensors message; the data of a large one are views of it."""
    if len(data) <= LARGE:
        message = parse(pb.Tensors, data)
        return list(message.data), message.sizes
    rest, parts = divide(pb.Tensors.DESCRIPTOR, data, (pb.Tensors.DATA_FIELD_NUMBER,))
    return owned([part for _, part in parts], len(data)), parse(pb.Tensors, rest).sizes


def spec_from_pb(spec: pb.TensorSpec) -> TensorSpec:
    """Read a TensorSpec message.

    Raises:
        InvalidError: the element type is unknown, or the name or shape is not valid.

    """
    kind = _FROM_PB.get(spec.type)
    if kind is None:
        raise InvalidError(f"{spec.name}: unknown element type {spec.type}; known are 1 to {max(_FROM_PB)}")
    return TensorSpec(spec.name, kind, tuple(spec.shape))


def spec_to_pb(spec: TensorSpec) -> pb.TensorSpec:
    """Make the TensorSpec message of ``spec``."""
    return pb.TensorSpec(name=spec.name, type=_TO_PB[spec.type], shape=spec.shape)


def layout_to_pb(layout: Layout) -> pb.Layout:
    """Make the Layout message of ``layout``."""
    return pb.Layout(tensors=[spec_to_pb(spec) for spec in layout.specs])


def signature_from_pb(signature: pb.Signature) -> Signature:
    """Read a Signature message.

    Raises:
        InvalidError: a spec is not valid, or two features have the same name.

    """
    return Signature.of([spec_from_pb(spec) for spec in signature.features], spec_from_pb(signature.advice))


def signature_to_pb(signature: Signature) -> pb.Signature:
    """Make the Signature message of ``signature``."""
    features = [spec_to_pb(spec) for spec in signature.features.specs]
    return pb.Signature(features=features, advice=spec_to_pb(signature.advice))


class PackedTensorsCodec:
    """Fixed tensors: encoding slices the packed record, decoding joins the slices."""

    takes_views = True

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._packed = PackedCodec(layout)
        self._sizes = [spec.size for spec in layout.specs]
        ends = np.cumsum(self._sizes).tolist()
        self._slices = [slice(end - size, end) for end, size in zip(ends, self._sizes, strict=True)]

    def encode(self, values: Values) -> bytes:
        """Encode one record."""
        record = values.tobytes()
        return pb.Tensors(data=[record[part] for part in self._slices]).SerializeToString()

    def decode(self, data: Buffer) -> Values:
        """Decode one record."""
        parts, sizes = _parts(data)
        if [len(part) for part in parts] != self._sizes:
            raise InvalidError(_size_message(self._layout, parts))
        if sizes:
            raise InvalidError("Tensors.sizes is set, but no tensor of this layout varies")
        return self._packed.decode(packed(parts, self._layout.size))


def _size_message(layout: Layout, parts: Sequence[Buffer]) -> str:
    if len(parts) != len(layout.specs):
        return f"{len(parts)} tensors came where the session has {len(layout.specs)}"
    spec, part = next((spec, part) for spec, part in zip(layout.specs, parts, strict=True) if len(part) != spec.size)
    return f"{spec} takes {spec.size} bytes, {len(part)} came"


class TensorsCodec:
    """Any layout, one tensor at a time."""

    takes_views = True

    def __init__(self, layout: Layout, limits: MessageLimits) -> None:
        self._layout = layout
        self._limits = limits
        self._open_dims = sum(spec.shape.count(VARIES) for spec in layout.specs)

    def encode(self, values: Values) -> bytes:
        """Encode one record."""
        message = pb.Tensors()
        for spec in self._layout.specs:
            array = tensor(spec, values)
            message.data.append(_elements_to_pb(spec, array))
            message.sizes.extend(size for want, size in zip(spec.shape, array.shape, strict=True) if want == VARIES)
        return message.SerializeToString()

    def decode(self, data: Buffer) -> Values:
        """Decode one record."""
        parts, sizes = _parts(data)
        if len(parts) != len(self._layout.specs):
            raise InvalidError(_size_message(self._layout, parts))
        if len(sizes) != self._open_dims:
            raise InvalidError(f"{len(sizes)} sizes came; the layout leaves {self._open_dims} dimensions open")
        values: Values = np.zeros(1, self._layout.dtype)
        following = iter(sizes)
        for spec, part in zip(self._layout.specs, parts, strict=True):
            own = list(islice(following, spec.shape.count(VARIES)))
            shape = fill_shape(spec, own)
            if spec.type.is_text:
                self._limits.check_values(math.prod(shape))
            values[spec.name][0] = _elements_from_pb(spec, part, shape)
        return values


def _elements_to_pb(spec: TensorSpec, array: npt.NDArray[Any]) -> bytes:
    if not spec.type.is_text:
        return array.tobytes()
    texts = [text.encode() if isinstance(text, str) else text for text in array.flat]
    return pb.Strings(elements=texts).SerializeToString()


def _elements_from_pb(spec: TensorSpec, part: Buffer, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    if spec.type.is_text:
        return texts_to_array(spec, list(parse(pb.Strings, part).elements), shape)
    count, rest = divmod(len(part), spec.type.dtype.itemsize)
    if rest:
        raise InvalidError(f"{spec}: {len(part)} bytes are no whole number of elements")
    array: npt.NDArray[Any] = np.ndarray(count, spec.type.dtype, part)
    if spec.type is ElementType.BOOL:
        check_bool(spec, array)
    return reshape(spec, array, shape)
