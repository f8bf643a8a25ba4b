"""Inference requests over HTTP: JSON, and tensors after it; read into the protocol's message."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import msgspec

from policybridge.inference import inference_service_pb2 as pb
from policybridge_core.errors import InvalidError
from policybridge_serdes import TensorSpec
from policybridge_serdes.checks import decode_json
from policybridge_serdes.limits import Buffer
from policybridge_serdes.values import fit
from policybridge_server.grpc.error_details import FieldError
from policybridge_server.open_inference.binary import BinaryInputs
from policybridge_server.open_inference.datatypes import kind_of, raw_texts
from policybridge_server.open_inference.supported import check_parameters, check_supported

_DEEPEST: Final = 31
_MOST_TENSORS: Final = 4096

_Parameters = dict[str, bool | int | float | str]


class _Input(msgspec.Struct):
    name: str
    shape: list[int]
    datatype: str
    data: list[Any] | None = None
    parameters: _Parameters = {}


class _Output(msgspec.Struct):
    name: str
    parameters: _Parameters = {}


class _Request(msgspec.Struct):
    inputs: list[_Input]
    id: str = ""
    parameters: _Parameters = {}
    outputs: list[_Output] = []


_REQUEST: Final = msgspec.json.Decoder(_Request)


@dataclass(frozen=True)
class HttpRequest:
    """An inference request over HTTP.

    Attributes:
        message: the request without its tensors.
        contents: the tensors, one for each input.
        binary: whether outputs follow the JSON of the response.
        binary_by_name: the same for single outputs.

    """

    message: pb.ModelInferRequest
    contents: Sequence[Buffer]
    binary: bool
    binary_by_name: Mapping[str, bool]

    def is_binary(self, output: str) -> bool:
        """Whether this output follows the JSON of the response."""
        return self.binary_by_name.get(output, self.binary)


def request_from_json(name: str, version: str, body: bytes, binary: Buffer = b"") -> HttpRequest:
    """Read the body of an inference request.

    Args:
        name: the model's name.
        version: the model's version, or empty.
        body: the JSON.
        binary: the bytes after it.

    Raises:
        InvalidError: it is not an inference request.
        UnsupportedError: it needs an extension that this server lacks.

    """
    request = _decoded(body)
    if len(request.inputs) + len(request.outputs) > _MOST_TENSORS:
        raise InvalidError(f"a request has at most {_MOST_TENSORS} inputs and outputs")
    check_parameters((request,), request.inputs, request.outputs)
    message = pb.ModelInferRequest(model_name=name, model_version=version)
    all_binary = _flag(request.parameters, "binary_data_output", "parameters")
    by_name = {asked.name: _flag(asked.parameters, "binary_data", f"outputs[{asked.name}].parameters")
               for asked in request.outputs if "binary_data" in asked.parameters}  # fmt: skip
    sizes = [given.parameters.pop("binary_data_size", None) for given in request.inputs]
    _describe(request, message)
    check_supported(message)
    tensors = BinaryInputs(binary)
    contents = [
        _from_json(given) if size is None else _from_bytes(given, size, tensors)
        for given, size in zip(request.inputs, sizes, strict=True)
    ]
    tensors.check_end()
    return HttpRequest(message, contents, all_binary, by_name)


def _decoded(body: bytes) -> _Request:
    if b"NaN" not in body and b"Infinity" not in body:
        return decode_json(_REQUEST, body, "an inference request")
    # JSON has no word for these, but Triton's clients write them as JavaScript does; Python's parser reads them.
    try:
        return msgspec.convert(json.loads(body), _Request)
    except (ValueError, RecursionError) as error:
        raise InvalidError(f"not an inference request: {error}") from error


def _flag(parameters: _Parameters, key: str, field: str) -> bool:
    value = parameters.pop(key, False)
    if not isinstance(value, bool):
        raise FieldError(f"{field}.{key}", f"{key} is true or false, not {value!a:.60}")
    return value


def _describe(request: _Request, message: pb.ModelInferRequest) -> None:
    """Set all of ``message`` except the tensors' contents."""
    try:
        message.id = request.id
        _set_parameters(message.parameters, request.parameters)
        for given in request.inputs:
            tensor = message.inputs.add(name=given.name, datatype=given.datatype)
            _set_shape(tensor, given)
            _set_parameters(tensor.parameters, given.parameters)
        for asked in request.outputs:
            _set_parameters(message.outputs.add(name=asked.name).parameters, asked.parameters)
    except ValueError as error:
        # Half a surrogate pair, which JSON can write and a protobuf message cannot hold.
        raise InvalidError(f"not an inference request: {error!a}") from error


def _set_shape(tensor: pb.ModelInferRequest.InferInputTensor, given: _Input) -> None:
    try:
        tensor.shape.extend(given.shape)
    except ValueError as error:
        raise FieldError(f"inputs[{given.name}].shape", f"{given.name}: {error}") from error


def _set_parameters(message: Any, parameters: _Parameters) -> None:
    for key, value in parameters.items():
        _set_parameter(message[key], key, value)


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


def _from_bytes(given: _Input, size: object, tensors: BinaryInputs) -> Buffer:
    if given.data is not None:
        raise FieldError(
            f"inputs[{given.name}].data", f"{given.name} has `data` beside `binary_data_size`; one is right"
        )
    return tensors.take(given.name, size)


def _from_json(given: _Input) -> bytes:
    kind = kind_of(given.name, given.datatype)
    if given.data is None:
        raise FieldError(
            f"inputs[{given.name}].data", f"{given.name} has no contents: neither `data` nor `binary_data_size`"
        )
    flat = _flat(given.name, given.data)
    if kind.is_text:
        return raw_texts([_text(given.name, item) for item in flat])
    return fit(TensorSpec(given.name, kind, (-1,)), flat).tobytes()


def _flat(name: str, data: list[Any]) -> list[Any]:
    """Give the elements of ``data``, flat or nested as the client likes; numpy takes far longer for nested lists."""
    for _ in range(_DEEPEST):
        if not (data and isinstance(data[0], list)):
            return data
        width = len(data[0])
        if not all(isinstance(each, list) and len(each) == width for each in data):
            raise FieldError(
                f"inputs[{name}].data", f"{name} was given a value that is no tensor: its lists differ in size"
            )
        data = list(chain.from_iterable(data))
    raise FieldError(f"inputs[{name}].data", f"{name} is nested more than {_DEEPEST} deep")


def _text(name: str, item: object) -> bytes:
    if not isinstance(item, str):
        raise FieldError(f"inputs[{name}].data", f"{name}: BYTES are strings in JSON, not {type(item).__name__}")
    return item.encode()
