"""One attacker at one door: size, depth, count, half, repeat and lie; see `README.md` for the table."""

import gzip
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

import grpc
from grpc_health.v1 import health_pb2
from grpc_health.v1.health_pb2_grpc import HealthStub
from tritonclient.grpc import service_pb2 as inference  # type: ignore[import-untyped]
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub  # type: ignore[import-untyped]

from policybridge.v1 import policy_service_pb2, replication_service_pb2, repository_service_pb2
from policybridge.v1.replication_service_pb2_grpc import ReplicationServiceStub
from policybridge.v1.repository_service_pb2_grpc import RepositoryServiceStub
from tests.attacks.target import HELLO, VARIES, Target, repeat, together

Attack = Callable[[Target], None]

LARGE: Final = 60 << 20
_INFER: Final = "POST /v2/models/echo/infer HTTP/1.1\r\nHost: localhost\r\n"


def body(data: bytes, *headers: str, head: int = 9) -> bytes:
    """Write a request for advice over HTTP."""
    lines = "".join(f"{header}\r\n" for header in headers)
    start = f"{_INFER}Inference-Header-Content-Length: {head}\r\n{lines}Content-Length: {len(data)}\r\n\r\n"
    return start.encode() + data


def bomb() -> bytes:
    """Write a request of 398 KiB that would unpack to 400 MiB."""
    return body(gzip.compress(bytes(400 << 20)), "Content-Encoding: gzip")


def _http_size(target: Target) -> None:
    for _ in range(4):
        target.send("http", body(bytes(LARGE))[:-1])


def _sessions(target: Target, count: int, *rest: bytes) -> None:
    for _ in range(count):
        target.send("socket", HELLO, VARIES, *rest)


def _publish(config: str) -> Attack:
    header = repository_service_pb2.PublishHeader(policy="new", config=config)
    request = repository_service_pb2.PublishRequest(header=header)
    return lambda target: target.call(lambda channel: RepositoryServiceStub(channel).Publish(iter([request])))


def _weights(target: Target) -> None:
    entry = {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]}
    header = json.dumps({f"t{number}": entry for number in range(600_000)}).encode()
    data = len(header).to_bytes(8, "little") + header
    base = policy_service_pb2.PolicyReference(name="echo")
    kind = repository_service_pb2.PublishWeightsRequest
    pieces = (kind(safetensors=data[start : start + (1 << 20)]) for start in range(0, len(data), 1 << 20))
    target.call(lambda channel: RepositoryServiceStub(channel).PublishWeights(iter([kind(base=base), *pieces])))


def followed(channel: grpc.Channel, messages: Sequence[replication_service_pb2.FollowRequest]) -> None:
    """Follow as a replica that sends ``messages``, for 5 s at most."""
    for _ in ReplicationServiceStub(channel).Follow(iter(messages), timeout=5):
        continue


def _replica(target: Target) -> None:
    kind = replication_service_pb2.FollowRequest
    lack = replication_service_pb2.Lack(policy="x", reason="y" * LARGE)
    for number in range(6):
        hello = kind(hello=replication_service_pb2.Hello(id=f"{number}"))
        told = kind(adopted=replication_service_pb2.Adopted(revision=1, lacks=[lack]))
        target.call(partial(followed, messages=(hello, told)))
    target.call(lambda channel: ReplicationServiceStub(channel).Replicas(replication_service_pb2.ReplicasRequest()))


def _packed(target: Target) -> None:
    contents = inference.InferTensorContents()
    contents.MergeFromString(b"\x1a\x80\x80\x80\x1e" + bytes(LARGE))
    tensor = inference.ModelInferRequest.InferInputTensor(name="x", datatype="INT64", contents=contents)
    request = inference.ModelInferRequest(model_name="echo", inputs=[tensor])
    target.call(lambda channel: GRPCInferenceServiceStub(channel).ModelInfer(request))


def infer_request(size: int, sequence: int = 0) -> inference.ModelInferRequest:
    """Make a request for advice on an observation of ``size`` bytes."""
    tensor = inference.ModelInferRequest.InferInputTensor(name="x", datatype="INT64", shape=[size // 8])
    request = inference.ModelInferRequest(model_name="first", inputs=[tensor], raw_input_contents=[bytes(size)])
    if sequence:
        request.parameters["sequence_id"].int64_param = sequence
        request.parameters["sequence_start"].bool_param = True
    return request


def _name(target: Target) -> None:
    request = health_pb2.HealthCheckRequest(service="x" * LARGE)
    for _ in range(3):
        target.call(lambda channel: HealthStub(channel).Check(request))


def _half(target: Target) -> None:
    repeat(300, lambda: target.send("http", _INFER.encode()))


def _http_two(target: Target) -> None:
    packed = bomb()
    together(*[lambda: target.asked("http", packed)] * 10)


DOOR_ATTACKS: Final[Mapping[str, Attack]] = MappingProxyType(
    {
        "http size": _http_size,
        "http depth": lambda target: target.asked("http", body(b"[" * 900_000)),
        "http count": lambda target: target.asked("http", b"GET /v2 HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5_000),
        "http half": _half,
        "http repeat": lambda target: repeat(4, lambda: target.asked("http", bomb())),
        "http lie": lambda target: target.asked("http", f"{_INFER}Content-Length: {1 << 60}\r\n\r\n".encode()),
        "http two at once": _http_two,
        "socket size": lambda target: target.asked("socket", b"x" * (4 << 20)),
        "socket depth": lambda target: target.asked("socket", b'{"a":' + b"[" * 900_000 + b"\n"),
        "socket count": lambda target: _sessions(target, 1, b'{"context":"f"}\n' * 200_000),
        "socket half": lambda target: _sessions(target, 4, b'{"observation":0,"bytes":60000000}\n' + bytes(30_000_000)),
        "socket repeat": lambda target: _sessions(target, 400),
        "socket lie": lambda target: _sessions(target, 20, b'{"observation":0,"bytes":%d}\n' % (1 << 60)),
        "gRPC name size": _name,
        "inference count": _packed,
        "publishing depth": _publish(f'backend = "onnx"\n[settings]\n{".".join("a" * 30_000)} = 1\n'),
        "publishing size": _publish('backend = "onnx"\n' + "#" * LARGE),
        "weights count": _weights,
        "replica size": _replica,
    }
)  # fmt: skip
