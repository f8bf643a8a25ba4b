"""The service that a user of a server with own messages writes: a field per feature, and the decision."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from policybridge_bench.contenders.contract import Route
from policybridge_bench.contenders.peer import check, decisions, grpc_call, model_inputs
from policybridge_bench.load import Load
from policybridge_bench.payloads import payload
from policybridge_bench.requests import write_messages
from policybridge_core.errors import PreconditionError
from policybridge_serdes import ElementType

METHOD: Final = "/policybridge_bench.Advice/getAdvice"

_BYTES: Final = 2
"""The wire type of what has a length."""

_PROTO: Final = """\
syntax = "proto3";
package policybridge_bench;
service Advice {{ rpc getAdvice(Request) returns (Reply); }}
message Request {{
{fields}}}
message Reply {{ int64 decision = 1; }}
"""


def compile_advice(python: Path, folder: Path, name: str) -> None:
    """Make the Python stubs for a payload in ``folder``, by an environment that has grpcio-tools."""
    folder.mkdir()
    specs = payload(name).signature.features.specs
    kinds = ["int64" if spec.type is ElementType.INT64 else "repeated float" for spec in specs]
    numbered = enumerate(zip(kinds, specs, strict=True), 1)
    fields = "".join(f"  {kind} {spec.name} = {number};\n" for number, (kind, spec) in numbered)
    (folder / "advice.proto").write_text(_PROTO.format(fields=fields))
    outputs = [f"-I{folder}", f"--python_out={folder}", f"--grpc_python_out={folder}"]
    command = [str(python), "-m", "grpc_tools.protoc", *outputs, "advice.proto"]
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


def route(folder: Path, port: int, name: str, way: str = "unary") -> Route:
    """Give the way to a server of this service."""
    file = folder / f"{name}.advice"
    write_messages([advice_request(tensors) for tensors in model_inputs(name)], file)
    load = Load(kind="unary", address=f"grpc:127.0.0.1:{port}", method=METHOD, payload=name, file=str(file))
    return Route(way, load, ("native", "python"), "onnx")
