"""The protocol's JSON bodies, in terms of its messages."""

import json
from typing import Any, Final

import msgspec
import numpy as np

from policybridge.inference import inference_service_pb2 as pb
from policybridge_core.errors import UnsupportedError
from policybridge_serdes import TensorSpec
from policybridge_serdes.checks import decode_json
from policybridge_serdes.values import fit
from policybridge_server.grpc.field_error import FieldError
from policybridge_server.open_inference.datatypes import kind_of, raw_texts, split_texts

_DEEPEST: Final = 31

_Parameters = dict[str, bool | int | float | str]


class _Input(msgspec.Struct):
    name: str
    shape: list[int]
    datatype: str
    data: list[Any]


class _Output(msgspec.Struct):
    name: str


class _Request(msgspec.Struct):
    inputs: list[_Input]
    id: str = ""
    parameters: _Parameters = {}
    outputs: list[_Output] = []


_REQUEST: Final = msgspec.json.Decoder(_Request)


def request_from_json(name: str, version: str, body: bytes) -> pb.ModelInferRequest:
    """Read the body of an inference request.

    Raises:
        InvalidError: it is none.

    """
    request = decode_json(_REQUEST, body, "an inference request")
    message = pb.ModelInferRequest(model_name=name, model_version=version, id=request.id)
    for key, value in request.parameters.items():
        _set_parameter(message.parameters[key], key, value)
    for given in request.inputs:
        message.raw_input_contents.append(_raw(given))
        try:
            message.inputs.add(name=given.name, datatype=given.datatype, shape=given.shape)
        except ValueError as error:
            raise FieldError(f"inputs[{given.name}].shape", f"{given.name}: {error}") from error
    for asked in request.outputs:
        message.outputs.add(name=asked.name)
    return message


def _set_parameter(parameter: pb.InferParameter, key: str, value: bool | int | float | str) -> None:
    if isinstance(value, bool):
        parameter.bool_param = value
    elif isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise FieldError(f"parameters.{key}", f"{key} is out of the range of 64 bits")
        parameter.int64_param = value
    elif isinstance(value, float):
        parameter.double_param = value
    else:
        parameter.string_param = value


def _raw(given: _Input) -> bytes:
    kind = kind_of(given.name, given.datatype)
    if kind.is_text:
        return raw_texts([_text(given.name, item) for item in np.asarray(given.data, object).flat])
    # Flat or nested, as the client likes.
    spec = TensorSpec(given.name, kind, (-1,) * _depth(given))
    return fit(spec, given.data).tobytes()


def _depth(given: _Input) -> int:
    depth, data = 1, given.data
    while data and isinstance(data[0], list):
        depth, data = depth + 1, data[0]
        if depth > _DEEPEST:
            raise FieldError(f"inputs[{given.name}].data", f"{given.name} is nested more than {_DEEPEST} deep")
    return depth


def _text(name: str, item: object) -> bytes:
    if not isinstance(item, str):
        raise FieldError(f"inputs[{name}].data", f"{name}: BYTES are strings in JSON, not {type(item).__name__}")
    return item.encode()


def response_to_json(message: pb.ModelInferResponse) -> str:
    """Write the body of an inference response; infinities as JavaScript writes them, for which JSON has no word."""
    tensors = zip(message.outputs, message.raw_output_contents, strict=True)
    body: dict[str, Any] = {
        "model_name": message.model_name,
        "model_version": message.model_version,
        "outputs": [
            {
                "name": output.name,
                "datatype": output.datatype,
                "shape": list(output.shape),
                "data": _data(output, raw),
            }
            for output, raw in tensors
        ],
    }
    if message.id:
        body["id"] = message.id
    if message.parameters:
        body["parameters"] = {key: value.string_param for key, value in message.parameters.items()}
    return json.dumps(body)


def _data(output: pb.ModelInferResponse.InferOutputTensor, raw: bytes) -> list[Any]:
    kind = kind_of(output.name, output.datatype)
    if not kind.is_text:
        values: list[Any] = np.frombuffer(raw, kind.dtype).tolist()
        return values
    try:
        return [text.decode() for text in split_texts(output.name, raw)]
    except UnicodeDecodeError as error:
        raise UnsupportedError(f"{output.name} is no UTF-8 text, which JSON cannot hold; ask over gRPC") from error


def metadata_to_json(message: pb.ModelMetadataResponse) -> str:
    """Write the body of a model's metadata."""
    return json.dumps(
        {
            "name": message.name,
            "versions": list(message.versions),
            "platform": message.platform,
            "inputs": list(map(_tensor, message.inputs)),
            "outputs": list(map(_tensor, message.outputs)),
        }
    )


def _tensor(tensor: pb.ModelMetadataResponse.TensorMetadata) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
