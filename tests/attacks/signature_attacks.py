"""Sessions that replace their signature again and again, by the message `signature` of a session over gRPC."""

import time
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

import grpc

from policybridge.v1 import policy_service_pb2, tensor_pb2
from policybridge.v1.policy_service_pb2_grpc import PolicyServiceStub
from tests.attacks.door_attacks import Attack
from tests.attacks.target import Target

_SECONDS: Final = 4.0
_TYPE: Final = tensor_pb2.ELEMENT_TYPE_INT64
_REQUEST = policy_service_pb2.SessionRequest


def _signature(features: int) -> tensor_pb2.Signature:
    names = ["x", *(f"feature {number}" for number in range(1, features))]
    specs = [tensor_pb2.TensorSpec(name=name, type=_TYPE, shape=[1]) for name in names]
    return tensor_pb2.Signature(features=specs, advice=tensor_pb2.TensorSpec(name="advice", type=_TYPE, shape=[1]))


def _requests(features: int, goes_on: Callable[[], bool]) -> Iterator[policy_service_pb2.SessionRequest]:
    policy = policy_service_pb2.PolicyReference(name="echo")
    yield _REQUEST(open=policy_service_pb2.Open(policy=policy, signature=_signature(1)))
    again = _REQUEST(signature=_signature(features))
    while goes_on():
        yield again
    yield _REQUEST(observation=policy_service_pb2.Observation(step=1, values=bytes(8 * features)))


def _signed(target: Target, features: int, goes_on: Callable[[], bool]) -> None:
    def ask(channel: grpc.Channel) -> None:
        for _ in PolicyServiceStub(channel).Session(_requests(features, goes_on), timeout=30):
            continue

    target.call(ask)


def _for_seconds() -> Callable[[], bool]:
    end = time.monotonic() + _SECONDS
    return lambda: time.monotonic() < end


def _count(target: Target) -> None:
    """Send one signature of 4,000 features, which `--max-features` refuses."""
    once = iter([True])
    _signed(target, 4_000, lambda: next(once, False))


SIGNATURE_ATTACKS: Final[Mapping[str, Attack]] = MappingProxyType(
    {
        "signature size": lambda target: _signed(target, 1_000, _for_seconds()),
        "signature count": _count,
        "signature repeat": lambda target: _signed(target, 1, _for_seconds()),
    }
)
