"""Messages encoded before a measurement, and the files that hold them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from policybridge.v1 import policy_service_pb2 as pb
from policybridge.v1.tensor_pb2 import EncodedTensors
from policybridge_bench.load import Load
from policybridge_bench.payloads import payload
from policybridge_serdes import Signature, Values, load_serdes
from policybridge_serdes.interactive import observation_lines
from policybridge_serdes.protobuf import spec_to_pb

EVALUATE: Final = "/policybridge.v1.PolicyService/Evaluate"
SESSION: Final = "/policybridge.v1.PolicyService/Session"


def messages(load: Load) -> list[bytes]:
    """Give the messages of a load, without those that open a session."""
    asking = payload(load.payload)
    layout = asking.signature.features
    observations = asking.observations()
    if load.kind.startswith("evaluate"):
        return [_evaluate_request(load, asking.signature, one).SerializeToString() for one in observations]
    encode = load_serdes(load.serdes).codec(layout).encode
    packed = [encode(one) for one in observations]
    if load.kind == "wire" and load.policy:
        return [observation_lines(number, one, fixed=layout.fixed) for number, one in enumerate(packed)]
    if load.kind == "echo-unary":
        return [pb.EvaluateRequest(encoded=EncodedTensors(data=one)).SerializeToString() for one in packed]
    if load.kind == "echo-stream":
        return [pb.SessionRequest(observation=pb.Observation(step=1, values=one)).SerializeToString() for one in packed]
    return packed


def _evaluate_request(load: Load, signature: Signature, observation: Values) -> pb.EvaluateRequest:
    data = load_serdes(load.serdes).encode(observation, signature.features)
    request = pb.EvaluateRequest(policy=pb.PolicyReference(name=load.policy), advice_spec=spec_to_pb(signature.advice))
    if load.kind == "evaluate-tensors":
        request.tensors.ParseFromString(data)
    else:
        request.encoded.CopyFrom(EncodedTensors(serdes=load.serdes, data=data))
    return request


def write_messages(made: Sequence[bytes], file: Path, head: bytes = b"") -> None:
    """Write messages after the ``head`` of their session, if they have one."""
    parts = [part for message in made for part in (len(message).to_bytes(8, "little"), message)]
    file.write_bytes(b"".join([head, b"\n", *parts]))


def read_messages(file: Path) -> list[bytes]:
    """Read messages that belong to no session.

    Raises:
        ValueError: the file begins with a session's signature.

    """
    data, offset, made = file.read_bytes(), 1, []
    if data[:1] != b"\n":
        raise ValueError(f"{file} holds the messages of a session")
    while offset < len(data):
        size = int.from_bytes(data[offset : offset + 8], "little")
        made.append(data[offset + 8 : offset + 8 + size])
        offset += 8 + size
    return made
