"""The weights of an ONNX model: its initializers, replaced in the file without the package ``onnx``.

Only the messages that lead to the initializers are described here; protobuf keeps all other fields as they are.
"""

from functools import cache
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from policybridge_core.errors import PreconditionError
from policybridge_server.backends.weights import Tensor, check_weights, read_weights

_TYPES: Final = {
    "F32": 1,
    "U8": 2,
    "I8": 3,
    "U16": 4,
    "I16": 5,
    "I32": 6,
    "I64": 7,
    "BOOL": 9,
    "F16": 10,
    "F64": 11,
    "U32": 12,
    "U64": 13,
    "BF16": 16,
}
_NAMES: Final = {number: name for name, number in _TYPES.items()}
_FIELDS: Final = {
    "Model": {"graph": (7, "Graph")},
    "Graph": {"initializer": (5, "Tensor")},
    "Tensor": {"dims": (1, "int64"), "data_type": (2, "int32"), "name": (8, "bytes"), "raw_data": (9, "bytes")},
}
_REPEATED: Final = ("initializer", "dims")


def replace_initializers(model: bytes, weights: bytes) -> bytes:
    """Give ``model`` with the tensors of ``weights``, safetensors, in place of its initializers of the same names.

    Raises:
        InvalidError: ``weights`` are not safetensors.
        PreconditionError: the model has no such tensor, or one of another type or shape; or a tensor holds NaN.

    """
    parsed, new = _parse(model), read_weights(weights)
    base = {each.name.decode(errors="replace"): each for each in parsed.graph.initializer}
    check_weights(new, {name: _described(each) for name, each in base.items()})
    for name, tensor in new.items():
        kept = base[name].name
        # Clear the message first: ONNX may keep elements in other fields than raw_data, too.
        base[name].Clear()
        base[name].MergeFrom(
            type(base[name])(dims=tensor.shape, data_type=_TYPES[tensor.type], name=kept, raw_data=tensor.data)
        )
    replaced: bytes = parsed.SerializeToString()
    return replaced


def _described(tensor: Any) -> Tensor:
    return Tensor(_NAMES.get(tensor.data_type, f"type {tensor.data_type}"), tuple(tensor.dims), b"")


def _parse(model: bytes) -> Any:
    try:
        return _message_class().FromString(model)
    except message.DecodeError as error:
        raise PreconditionError(f"the version that the weights are for holds no ONNX model: {error}") from error


@cache
def _message_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="onnx_weights.proto", package="weights", syntax="proto2")
    for kind, fields in _FIELDS.items():
        described = file.message_type.add(name=kind)
        for name, (number, holds) in fields.items():
            _add_field(described, name, number, holds)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("weights.Model"))


def _add_field(described: Any, name: str, number: int, holds: str) -> None:
    kinds = descriptor_pb2.FieldDescriptorProto
    label = kinds.LABEL_REPEATED if name in _REPEATED else kinds.LABEL_OPTIONAL
    if holds in _FIELDS:
        described.field.add(
            name=name, number=number, label=label, type=kinds.TYPE_MESSAGE, type_name=f".weights.{holds}"
        )
    else:
        described.field.add(name=name, number=number, label=label, type=kinds.Type.Value(f"TYPE_{holds.upper()}"))
