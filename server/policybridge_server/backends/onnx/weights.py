"""The weights of an ONNX model: its initializers, replaced in the file without the package ``onnx``."""

from typing import Any, Final

from google.protobuf import message

from policybridge_core.errors import PreconditionError
from policybridge_server.backends.onnx.model_file import parse_model
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
