"""Observations of the allowed size at each door: zeros, bytes that do not compress, and packed ones."""

import contextlib
import gzip
import json
import random
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final

import grpc
import numpy as np
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub  # type: ignore[import-untyped]

from policybridge.v1 import policy_service_pb2, tensor_pb2
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceStub
from tests.attacks.door_attacks import LARGE, Attack, body, infer_request
from tests.attacks.target import ADVICE_PATH, HELLO, VARIES, Target, together
from tests.server.mlbridge.test_mlbridge_grpc_fuzz import varint

Values = Callable[[], bytes]
"""Gives the bytes of an observation."""

_FIRST: Final = VARIES.replace(b"-1", b"%d" % (LARGE // 8), 1).replace(b"-1", b"1")
_TIMEOUT: Final = 60
_LITTLE_LESS: Final = LARGE - (1 << 20)


def _zeros() -> bytes:
    return bytes(LARGE)


def _noise() -> bytes:
    return random.Random(0).randbytes(LARGE)


def _nearly_noise() -> bytes:
    # gRPC's own library packs a message only if that makes it smaller.
    return random.Random(0).randbytes(_LITTLE_LESS) + bytes(LARGE - _LITTLE_LESS)


def _check(answered: bool) -> None:
    if not answered:
        raise AssertionError("the observation has no advice")


def _ask(target: Target, work: Callable[[grpc.Channel], object]) -> None:
    with target.channel() as channel:
        work(channel)


def _over_http(values: Values, target: Target, *, packed: bool = False) -> None:
    data = values()
    given = {"name": "x", "datatype": "INT64", "shape": [LARGE // 8], "parameters": {"binary_data_size": LARGE}}
    head = json.dumps({"inputs": [given]}).encode()
    data = head + data
    if packed:
        data = gzip.compress(data, 1)
    headers = ("Content-Encoding: gzip",) if packed else ()
    with contextlib.closing(
        target.send("http", body(data, *headers, head=len(head)).replace(b"/echo/", b"/first/", 1))
    ) as made:
        _check(made.recv(12) == b"HTTP/1.1 200")


def _on_socket(values: Values, target: Target) -> None:
    observation = b'{"observation":0,"bytes":%d}\n' % LARGE + values() + b"\n"
    answers = target.send("socket", HELLO.replace(b"echo", b"first"), _FIRST, observation).makefile("rb")
    answers.readline()
    _check(answers.read(1) == b"\0")


def _inferred(values: Values, target: Target) -> None:
    request = infer_request(LARGE)
    request.raw_input_contents[0] = values()
    _ask(target, lambda channel: GRPCInferenceServiceStub(channel).ModelInfer(request, timeout=_TIMEOUT))


def _specs(count: int = 1) -> tuple[list[tensor_pb2.TensorSpec], tensor_pb2.TensorSpec]:
    """Give the specs of the features, which share the observation's bytes, and of the advice."""
    kind = tensor_pb2.ELEMENT_TYPE_INT64
    names = ["x", *map(str, range(1, count))]
    features = [tensor_pb2.TensorSpec(name=name, type=kind, shape=[LARGE // 8 // count]) for name in names]
    return features, tensor_pb2.TensorSpec(name="advice", type=kind, shape=[1])


def _evaluated(values: Values, target: Target, *, packed: bool = False) -> None:
    features, advice = _specs()
    tensors = tensor_pb2.DescribedTensors(
        layout=tensor_pb2.Layout(tensors=features), values=tensor_pb2.Tensors(data=[values()])
    )
    policy = policy_service_pb2.PolicyReference(name="first")
    request = policy_service_pb2.EvaluateRequest(policy=policy, tensors=tensors, advice_spec=advice)
    way = grpc.Compression.Gzip if packed else grpc.Compression.NoCompression
    _ask(target, lambda channel: PolicyServiceStub(channel).Evaluate(request, timeout=_TIMEOUT, compression=way))


def _in_session(values: Values, target: Target, *, tensors: int = 1, packed: bool = False) -> None:
    features, advice = _specs(tensors)
    policy = policy_service_pb2.PolicyReference(name="first")
    signature = tensor_pb2.Signature(features=features, advice=advice)
    opened = policy_service_pb2.Open(policy=policy, signature=signature, serdes="protobuf" if tensors > 1 else "")
    data = values()
    if tensors > 1:
        parts = [data[start : start + LARGE // tensors] for start in range(0, LARGE, LARGE // tensors)]
        data = tensor_pb2.Tensors(data=parts).SerializeToString()
    asked = policy_service_pb2.Observation(step=1, values=data)
    requests = (
        policy_service_pb2.SessionRequest(open=opened),
        policy_service_pb2.SessionRequest(observation=asked),
    )
    way = grpc.Compression.Gzip if packed else grpc.Compression.NoCompression
    _ask(
        target,
        lambda channel: list(PolicyServiceStub(channel).Session(iter(requests), timeout=_TIMEOUT, compression=way)),
    )


def _advised(target: Target) -> None:
    """Ask with numbers of 8 bytes each, on the wire as in the observation."""
    numbers = np.frombuffer(_noise(), np.uint8).reshape(-1, 8) | np.uint8(128)
    numbers[:, 7] &= 127
    question = b"\x0a" + varint(numbers.size) + numbers.tobytes()
    _ask(target, lambda channel: channel.unary_unary(ADVICE_PATH, None, None)(question, timeout=_TIMEOUT))


_DOORS: Final[Mapping[str, Callable[[Values, Target], None]]] = MappingProxyType(
    {
        "http": _over_http,
        "socket": _on_socket,
        "gRPC": _evaluated,
        "session": _in_session,
        "inference": _inferred,
    }
)


def _twice(door: Callable[[Values, Target], None], target: Target) -> None:
    """Ask twice at once, each with bytes that do not compress."""
    together(*[partial(door, _noise, target)] * 2)


OBSERVATION_ATTACKS: Final[Mapping[str, Attack]] = MappingProxyType(
    {
        **{f"{name} allowed size": partial(door, _zeros) for name, door in _DOORS.items()},
        **{f"{name} noise size": partial(door, _noise) for name, door in _DOORS.items()},
        **{f"{name} noise two at once": partial(_twice, door) for name, door in _DOORS.items()},
        "http packed size": partial(_over_http, _noise, packed=True),
        "gRPC packed size": partial(_evaluated, _nearly_noise, packed=True),
        "session packed size": partial(_in_session, _nearly_noise, packed=True),
        "mlbridge noise size": _advised,
        "session parted size": partial(_in_session, _noise, tensors=2),
    }
)
