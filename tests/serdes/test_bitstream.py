"""LLVM's raw tensors: the conformance suite, and the bytes they are pinned to."""

import numpy as np

from policybridge_serdes import ElementType, Layout, TensorSpec, pack

from .conformance import (
    FIXED,
    FIXED_SPECS,
    LYING_SPECS,
    ONE_BOOL,
    ONE_FLOAT,
    ONE_OPEN_BOOL,
    ONE_STRING,
    SerDesConformance,
)


def pack_sizes(*sizes: int) -> bytes:
    return b"".join(size.to_bytes(8, "little") for size in sizes)


class TestBitstream(SerDesConformance):
    name = "bitstream"
    fixed_bytes = bytes.fromhex("01fe 0000003f")
    varying_bytes = bytes.fromhex(
        "0100feff 01 0100000000000000 0000c03f 02000000 c3a9 0200000000000000 01000000 00000000 00"
    )
    described_bytes = FIXED_SPECS + b"\n" + fixed_bytes
    lies = (
        (ONE_FLOAT, pack_sizes(2**62, 2**62)),
        (ONE_FLOAT, pack_sizes(2**64 - 1, 1)),
        (ONE_FLOAT, pack_sizes(2**63, 2)),
        (ONE_FLOAT, pack_sizes(1 << 30, 1) + bytes(4)),
        (ONE_FLOAT, pack_sizes(0, 2**63)),
        (ONE_FLOAT, pack_sizes(2**27, 0)),
        (ONE_STRING, pack_sizes(2**40)),
        (ONE_STRING, pack_sizes(2) + b"\xff\xff\xff\xff" * 2 + b"ab"),
        (ONE_STRING, pack_sizes(1) + b"\1\0\0\0\xff"),
        (ONE_BOOL, b"\7"),
        (ONE_OPEN_BOOL, pack_sizes(2) + b"\1\7"),
        *((None, line + b"\n") for line in LYING_SPECS),
        (None, b"{}\n"),
    )

    def test_llvms_inliner_observation_is_the_session_form(self) -> None:
        layout = Layout.of(TensorSpec(f"f{index}", ElementType.INT64) for index in range(38))
        values = pack(layout, {f"f{index}": index - 19 for index in range(38)})
        as_llvm_writes = b"".join((index - 19).to_bytes(8, "little", signed=True) for index in range(38))
        assert self.serdes.codec(layout).encode(values) == as_llvm_writes
        assert self.serdes.codec(layout).decode(as_llvm_writes).tobytes() == as_llvm_writes

    def test_fixed_tensors_are_read_where_they_lie(self) -> None:
        data = bytes(range(6))
        values = self.serdes.codec(FIXED).decode(data)
        assert np.shares_memory(values, np.frombuffer(data, np.uint8))
        assert not values.flags.writeable
