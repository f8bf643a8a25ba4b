"""The service that a user of a server with own messages writes: a field per feature, and the decision."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet

from policybridge_bench.contenders.contract import Route
from policybridge_bench.contenders.peer import check, decisions, grpc_call, model_inputs
from policybridge_bench.load import Load
from policybridge_bench.payloads import payload
from policybridge_bench.requests import write_messages
from policybridge_serdes import ElementType
from policybridge_serdes.errors import PreconditionError

METHOD: Final = "/policybridge_bench.Advice/getAdvice"

_BYTES: Final = 2
"""The wire type of fields that are preceded by their length."""


def _file(name: str) -> FileDescriptorProto:
    """Give the .proto file of the service for a payload: a field per feature, and the decision."""
    file = FileDescriptorProto(name="advice.proto", package="policybridge_bench", syntax="proto3")
    request, reply = file.message_type.add(name="Request"), file.message_type.add(name="Reply")
    kinds = FieldDescriptorProto
    for number, spec in enumerate(payload(name).signature.features.specs, 1):
        field = request.field.add(name=spec.name, number=number, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
        if spec.type is not ElementType.INT64:
            field.type, field.label = kinds.TYPE_FLOAT, kinds.LABEL_REPEATED
    reply.field.add(name="decision", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_OPTIONAL)
    types = {"input_type": ".policybridge_bench.Request", "output_type": ".policybridge_bench.Reply"}
    file.service.add(name="Advice").method.add(name="getAdvice", **types)
    return file


def _write_descriptors(folder: Path, name: str) -> Path:
    file = folder / "advice.binpb"
    file.write_bytes(FileDescriptorSet(file=[_file(name)]).SerializeToString())
    return file


def write_config(folder: Path, name: str, policy: str) -> Path:
    """Write the configuration with which PolicyBridge serves the service, answered by ``policy``."""
    file = folder / "config.toml"
    descriptors = _write_descriptors(folder, name)
    file.write_text(f'[mlbridge]\ndescriptors = ["{descriptors}"]\npolicy = "{policy}"\n')
    return file


def compile_advice(python: Path, folder: Path, name: str) -> None:
    """Make the Python stubs for a payload in ``folder``, by an environment that has grpcio-tools."""
    folder.mkdir()
    outputs = [f"--python_out={folder}", f"--grpc_python_out={folder}"]
    descriptors = f"--descriptor_set_in={_write_descriptors(folder, name)}"
    command = [str(python), "-m", "grpc_tools.protoc", descriptors, *outputs, "advice.proto"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise PreconditionError(f"{' '.join(command)} failed:\n{done.stderr}")


def advice_request(tensors: Mapping[str, np.ndarray[Any, Any]]) -> bytes:
    """Encode a request: a scalar as a number, a longer tensor as packed floats."""
    return b"".join(_encode(number, tensor) for number, tensor in enumerate(tensors.values(), 1))


def _encode(number: int, tensor: np.ndarray[Any, Any]) -> bytes:
    if tensor.dtype == np.float32:
        return _varint(number << 3 | _BYTES) + _varint(tensor.nbytes) + tensor.tobytes()
    return _varint(number << 3) + _varint(int(tensor.item()) % 2**64)


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


def check_advice(who: str, port: int, name: str, model: Path) -> None:
    """Make sure that the payload's model answers as it does here.

    Raises:
        PolicyFailedError: it answers otherwise.

    """
    call, inputs = grpc_call(port, METHOD), model_inputs(name)

    def ask(request: bytes) -> int:
        # Proto3 leaves out a decision of 0; that of 1 is a tag and a byte.
        reply = call(request)
        return reply[1] if reply else 0

    check(ask, [advice_request(tensors) for tensors in inputs], decisions(model, inputs), who)


def route(folder: Path, address: str, name: str, way: str = "unary") -> Route:
    """Give the way to a server of this service at ``address``, such as ``grpc:127.0.0.1:50051``."""
    file = folder / f"{name}.advice"
    write_messages([advice_request(tensors) for tensors in model_inputs(name)], file)
    return Route(
        way,
        Load(kind="unary", address=address, method=METHOD, payload=name, file=str(file)),
        ("native", "python"),
        "onnx",
    )
