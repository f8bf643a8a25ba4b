"""Protobuf: the conformance suite, and the bytes it is pinned to."""

from policybridge.v1 import tensor_pb2 as pb

from .conformance import FIXED, ONE_BOOL, ONE_FLOAT, ONE_OPEN_BOOL, ONE_STRING, SerDesConformance

PB_SPECS: list[tuple[str, int, list[int]]] = [
    ("", 1, []),
    ("x", 0, []),
    ("x", 99, []),
    ("x", 1, [-2]),
    ("x", 1, [2**62]),
    ("x", 1, [0, 2**62]),
    ("x", 1, [1] * 65),
]


def tensors_bytes(*data: bytes, sizes: tuple[int, ...] = ()) -> bytes:
    return pb.Tensors(data=data, sizes=sizes).SerializeToString()


def described_bytes_of(name: str, kind: int, shape: list[int]) -> bytes:
    spec = pb.TensorSpec(name=name, shape=shape)
    spec.type = kind  # type: ignore[assignment]  # what a peer of another version may send
    return pb.DescribedTensors(layout=pb.Layout(tensors=[spec]), values=pb.Tensors(data=[b""])).SerializeToString()


class TestProtobuf(SerDesConformance):
    name = "protobuf"
    fixed_bytes = bytes.fromhex("0a02 01fe 0a04 0000003f")
    varying_bytes = bytes.fromhex("0a04 0100feff 0a01 01 0a04 0000c03f 0a04 0a02c3a9 0a05 0a01000a00 1202 0102")
    described_bytes = bytes.fromhex("0a11 0a08 0a0161 1003 1a0102 0a05 0a0166 1001 120a 0a02 01fe 0a04 0000003f")
    lies = (
        (ONE_FLOAT, tensors_bytes(b"", sizes=(2**62, 4))),
        (ONE_FLOAT, tensors_bytes(b"", sizes=(0, 2**64 - 1))),
        (ONE_FLOAT, tensors_bytes(b"", sizes=(2**27, 0))),
        (ONE_FLOAT, tensors_bytes(bytes(4), sizes=(1, 2))),
        (ONE_FLOAT, tensors_bytes(bytes(3), sizes=(1, 1))),
        (ONE_FLOAT, tensors_bytes(bytes(4), sizes=(1,))),
        (ONE_FLOAT, tensors_bytes(bytes(4), sizes=(1, 1, 1))),
        (ONE_FLOAT, tensors_bytes(bytes(4), bytes(4), sizes=(1, 1))),
        (ONE_STRING, tensors_bytes(b"\x0a\1a", sizes=(2**40,))),
        (ONE_STRING, tensors_bytes(b"\x0a\1\xff", sizes=(1,))),
        (ONE_STRING, tensors_bytes(b"\x0a\7a", sizes=(1,))),
        (ONE_BOOL, tensors_bytes(b"\7")),
        (ONE_OPEN_BOOL, tensors_bytes(b"\1\7", sizes=(2,))),
        (FIXED, tensors_bytes(bytes(2), bytes(4), sizes=(1,))),
        *((None, described_bytes_of(*case)) for case in PB_SPECS),
    )
