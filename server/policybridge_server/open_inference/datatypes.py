"""The protocol's datatypes, and their elements as bytes and as typed contents."""

import math
from collections.abc import Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from policybridge.inference import inference_service_pb2 as pb
from policybridge_core.errors import InvalidError
from policybridge_serdes import ElementType, TensorSpec
from policybridge_serdes.checks import check_bool, decode_json, reshape, texts_to_array
from policybridge_serdes.limits import Buffer
from policybridge_serdes.values import fit

_LENGTH: Final = 4
_ANY: Final = msgspec.json.Decoder(Any)
_DATATYPES: Final = {
    ElementType.BOOL: "BOOL",
    ElementType.FLOAT: "FP32",
    ElementType.DOUBLE: "FP64",
    ElementType.BYTES: "BYTES",
    ElementType.STRING: "BYTES",
    **{kind: kind.name for kind in ElementType if "INT" in kind.name},
}
_KINDS: Final = {datatype: kind for kind, datatype in reversed(_DATATYPES.items())} | {"BYTES": ElementType.BYTES}
_CONTENTS: Final = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def datatype_of(kind: ElementType) -> str:
    """Give the protocol's name for an element type."""
    return _DATATYPES[kind]


def config_type_of(kind: ElementType) -> pb.DataType.ValueType:
    """Give its number in a model's configuration."""
    return pb.DataType.Value("TYPE_STRING" if kind.is_text else f"TYPE_{_DATATYPES[kind]}")


def kind_of(name: str, datatype: str) -> ElementType:
    """Give the element type of the input ``name``; BYTES are bytes.

    Raises:
        InvalidError: policies do not know the datatype.

    """
    kind = _KINDS.get(datatype)
    if kind is None:
        raise InvalidError(f"{name}: unknown datatype {datatype!r}; known are {', '.join(_KINDS)}")
    return kind


def raw_of(tensor: pb.ModelInferRequest.InferInputTensor) -> bytes:
    """Give the typed contents of a tensor as raw ones.

    Raises:
        InvalidError: unknown datatype, contents in another field than the datatype's, or values out of its range.

    """
    kind = kind_of(tensor.name, tensor.datatype)
    wanted = _CONTENTS[tensor.datatype]
    for field, _ in tensor.contents.ListFields():
        if field.name != wanted:
            raise InvalidError(f"{tensor.name}: {tensor.datatype} takes `{wanted}`; the request has `{field.name}`")
    elements = getattr(tensor.contents, wanted)
    if kind.is_text:
        return raw_texts(elements)
    spec = TensorSpec(tensor.name or "an input", kind, (len(elements),))
    return fit(spec, np.array(elements, _wide(kind))).tobytes()


def _wide(kind: ElementType) -> np.dtype[Any]:
    # As wide as the field, so that values out of range are seen and not wrapped.
    return np.dtype({"i": "i8", "u": "u8"}.get(kind.dtype.kind, kind.dtype))


def raw_texts(texts: Sequence[bytes]) -> bytes:
    """Join byte strings, each preceded by its length."""
    return b"".join(len(text).to_bytes(_LENGTH, "little") + text for text in texts)


def elements_of(spec: TensorSpec, raw: Buffer, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Read the elements of a tensor of this ``shape``.

    Raises:
        InvalidError: the bytes are not those of such a tensor.

    """
    if spec.type.is_text:
        return texts_to_array(spec, split_texts(spec.name, raw, math.prod(shape)), shape)
    wanted = math.prod(shape) * spec.type.dtype.itemsize
    if len(raw) != wanted:
        raise InvalidError(f"{spec.name}: {list(shape)} {spec.type.value} take {wanted} bytes; {len(raw)} came")
    array: npt.NDArray[Any] = np.frombuffer(raw, spec.type.dtype)
    if spec.type is ElementType.BOOL:
        check_bool(spec, array)
    return reshape(spec, array, shape)


def split_texts(name: str, raw: Buffer, count: int) -> list[bytes]:
    """Split joined byte strings, each preceded by its length.

    Raises:
        InvalidError: the last one is not whole, or there are more than ``count``.

    """
    texts: list[bytes] = []
    start = 0
    while start < len(raw):
        if len(texts) == count:
            raise InvalidError(f"{name}: more elements came than the {count} of its shape")
        end = start + _LENGTH + int.from_bytes(raw[start : start + _LENGTH], "little")
        if start + _LENGTH > len(raw) or end > len(raw):
            raise InvalidError(f"{name}: BYTES have a length of 4 bytes before each element; it reaches too far")
        texts.append(bytes(raw[start + _LENGTH : end]))
        start = end
    return texts


def raw_elements(spec: TensorSpec, array: npt.NDArray[Any]) -> bytes:
    """Give the elements of an answer as bytes."""
    if not spec.type.is_text:
        return array.tobytes()
    return raw_texts([text.encode() if isinstance(text, str) else text for text in array.flat])


def advice_from_json(text: str) -> TensorSpec:
    """Read the advice's spec that a request names.

    Raises:
        InvalidError: it is no spec.

    """
    return TensorSpec.from_json(decode_json(_ANY, text.encode(), "JSON in the parameter `advice`"))
