"""Requests of the Open Inference Protocol over gRPC, as bytes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from policybridge.inference import inference_service_pb2 as oip
from policybridge_bench.payloads import payload
from policybridge_bench.requests import write_messages
from policybridge_serdes import TensorSpec

INFER: Final = "/inference.GRPCInferenceService/ModelInfer"

_DATATYPES: Final = {"<i8": "INT64", "<f4": "FP32"}


def model_inputs(name: str) -> list[dict[str, np.ndarray[Any, Any]]]:
    """Give a payload's observations as a model server takes them: tensors by name, each of shape [1, n]."""
    asking = payload(name)
    return [
        {spec.name: values[spec.name].reshape(1, -1) for spec in asking.signature.features.specs}
        for values in asking.observations()
    ]


def write_requests(folder: Path, name: str, model: str, advice: TensorSpec | None = None) -> str:
    """Write the requests of the payload ``name`` to a model, and give the file."""
    file = folder / f"{name}-{model}.infer"
    if not file.exists():
        write_messages([infer_request(model, tensors, advice) for tensors in model_inputs(name)], file)
    return str(file)


def infer_request(model: str, tensors: Mapping[str, np.ndarray[Any, Any]], advice: TensorSpec | None = None) -> bytes:
    """Encode a ModelInferRequest with raw contents.

    PolicyBridge needs the ``advice`` in the request if the model does not declare its output.
    """
    inputs = [
        oip.ModelInferRequest.InferInputTensor(name=name, datatype=_DATATYPES[tensor.dtype.str], shape=tensor.shape)
        for name, tensor in tensors.items()
    ]
    raw = [tensor.tobytes() for tensor in tensors.values()]
    request = oip.ModelInferRequest(model_name=model, inputs=inputs, raw_input_contents=raw)
    if advice is not None:
        described = {"name": advice.name, "type": advice.type.value, "shape": advice.shape}
        request.parameters["advice"].string_param = json.dumps(described)
    return request.SerializeToString()
