"""Inference responses over HTTP: JSON, and tensors after it."""

import json
import math
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from policybridge.inference import inference_service_pb2 as pb
from policybridge_core.errors import UnsupportedError
from policybridge_server.open_inference.datatypes import kind_of, split_texts
from policybridge_server.open_inference.http_request import HttpRequest


def response_to_json(message: pb.ModelInferResponse, request: HttpRequest) -> tuple[str, list[bytes]]:
    """Write the body of an inference response: the JSON, and the tensors after it.

    Infinities and NaN are written as JavaScript writes them, because JSON has no word for them.
    """
    outputs: list[dict[str, Any]] = []
    tensors: list[bytes] = []
    for output, raw in zip(message.outputs, message.raw_output_contents, strict=True):
        written = {"name": output.name, "datatype": output.datatype, "shape": list(output.shape)}
        if request.is_binary(output.name):
            outputs.append({**written, "parameters": {"binary_data_size": len(raw)}})
            tensors.append(raw)
        else:
            outputs.append({**written, "data": _data(output, raw)})
    body: dict[str, Any] = {"model_name": message.model_name, "model_version": message.model_version}
    if message.id:
        body["id"] = message.id
    if message.parameters:
        body["parameters"] = {key: value.string_param for key, value in message.parameters.items()}
    return json.dumps({**body, "outputs": outputs}), tensors


def _data(output: pb.ModelInferResponse.InferOutputTensor, raw: bytes) -> list[Any]:
    kind = kind_of(output.name, output.datatype)
    if not kind.is_text:
        values: list[Any] = np.frombuffer(raw, kind.dtype).tolist()
        return values
    try:
        return [text.decode() for text in split_texts(output.name, raw, math.prod(output.shape))]
    except UnicodeDecodeError as error:
        raise UnsupportedError(
            f"{output.name} is no UTF-8 text, which JSON cannot hold; ask for it with the parameter `binary_data`"
        ) from error


def to_plain(message: Message) -> dict[str, Any]:
    """Give all fields of ``message``, also those with their default value; without messages that are not set.

    Protobuf's own JSON writes 64-bit numbers as strings; this protocol writes numbers.
    """
    fields = cast("Descriptor", message.DESCRIPTOR).fields
    return {field.name: _value(field, getattr(message, field.name)) for field in fields if _is_there(message, field)}


def _is_there(message: Message, field: FieldDescriptor) -> bool:
    return not field.has_presence or message.HasField(field.name)


def _value(field: FieldDescriptor, value: Any) -> Any:
    if isinstance(value, Message):
        return to_plain(value)
    if isinstance(value, Mapping):
        return {key: _single(field, each) for key, each in value.items()}
    if isinstance(value, str | bytes | bool | int | float):
        return _single(field, value)
    return [_single(field, each) for each in value]


def _single(field: FieldDescriptor, value: Any) -> Any:
    if isinstance(value, Message):
        return to_plain(value)
    return value if field.enum_type is None else field.enum_type.values_by_number[value].name
