"""ONNX model files, read, and their weights replaced, without the package ``onnx``.

Only the messages on the path to the initializers are described here; protobuf preserves all other fields.
"""

from functools import cache
from pathlib import Path
from typing import Any, Final

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from policybridge_core.errors import PreconditionError
from policybridge_server.backends.weights import Tensor, check_weights, read_weights

_FIELDS: Final = {
    "Model": {"graph": (7, "Graph")},
    "Graph": {"initializer": (5, "Tensor")},
    "Tensor": {
        "dims": (1, "int64"),
        "data_type": (2, "int32"),
        "name": (8, "bytes"),
        "raw_data": (9, "bytes"),
        "external_data": (13, "Entry"),
    },
    "Entry": {"key": (1, "bytes"), "value": (2, "bytes")},
}
_REPEATED: Final = ("initializer", "dims", "external_data")
_LARGEST: Final = 1 << 26
"""Limit in bytes of a model file read to explain an error. Models with tensors in other files are far smaller."""

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


def parse_model(model: bytes) -> Any:
    """Parse a model's file.

    Raises:
        google.protobuf.message.DecodeError: it is not a model.

    """
    return _message_class().FromString(model)


def missing_files(file: Path) -> list[str]:
    """Name the files that hold tensors of the model in ``file``, and are not there; as the model names them."""
    if file.stat().st_size > _LARGEST:
        return []
    try:
        initializers = parse_model(file.read_bytes()).graph.initializer
    except message.DecodeError:
        return []
    entries = (entry for tensor in initializers for entry in tensor.external_data if entry.key == b"location")
    names = {entry.value.decode(errors="replace").replace("\0", "\ufffd") for entry in entries}
    # A file elsewhere is refused by ONNX Runtime, in words of its own.
    inside = (name for name in sorted(names) if (file.parent / name).resolve().is_relative_to(file.parent.resolve()))
    return [name for name in inside if not (file.parent / name).is_file()]


@cache
def _message_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="onnx_model.proto", package="model_file", syntax="proto2")
    for kind, fields in _FIELDS.items():
        described = file.message_type.add(name=kind)
        for name, (number, holds) in fields.items():
            _add_field(described, name, number, holds)
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(file.SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("model_file.Model"))


def _add_field(described: Any, name: str, number: int, holds: str) -> None:
    kinds = descriptor_pb2.FieldDescriptorProto
    label = kinds.LABEL_REPEATED if name in _REPEATED else kinds.LABEL_OPTIONAL
    if holds in _FIELDS:
        described.field.add(
            name=name, number=number, label=label, type=kinds.TYPE_MESSAGE, type_name=f".model_file.{holds}"
        )
    else:
        described.field.add(name=name, number=number, label=label, type=kinds.Type.Value(f"TYPE_{holds.upper()}"))


def replace_initializers(model: bytes, weights: bytes | memoryview) -> bytes:
    """Give ``model`` with the tensors of ``weights``, safetensors, in place of its initializers of the same names.

    Raises:
        InvalidError: ``weights`` are not safetensors.
        PreconditionError: the model has no such tensor, or one of another type or shape; or a tensor has NaN.

    """
    new, parsed = read_weights(weights), _parse(model)
    base = {each.name.decode(errors="replace"): each for each in parsed.graph.initializer}
    check_weights(new, {name: _described(each) for name, each in base.items()})
    for name, tensor in new.items():
        kept = base[name].name
        # Clear the message first: ONNX may keep elements in other fields than raw_data, too.
        base[name].Clear()
        base[name].MergeFrom(
            type(base[name])(dims=tensor.shape, data_type=_TYPES[tensor.type], name=kept, raw_data=bytes(tensor.data))
        )
    replaced: bytes = parsed.SerializeToString()
    return replaced


def _described(tensor: Any) -> Tensor:
    return Tensor(_NAMES.get(tensor.data_type, f"type {tensor.data_type}"), tuple(tensor.dims), b"")


def _parse(model: bytes) -> Any:
    try:
        return parse_model(model)
    except message.DecodeError as error:
        raise PreconditionError(f"the version that the weights are for holds no ONNX model: {error}") from error
