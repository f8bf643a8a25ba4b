"""The columns of a segment."""

import tracemalloc
import zlib

import numpy as np
import pytest

from policybridge_core.errors import InvalidError
from policybridge_serdes import ElementType, Layout, TensorSpec, pack
from policybridge_serdes.bitstream import BitstreamSerDes
from policybridge_server.ledger.packing import pack_numbers, pack_rows, unpack_numbers, unpack_rows

FIXED = Layout.of([TensorSpec("x", ElementType.INT64), TensorSpec("y", ElementType.FLOAT, (1, 3))])
WORDS = Layout.of([TensorSpec("x", ElementType.INT64, (2,))])
VARYING = Layout.of([TensorSpec("names", ElementType.STRING, (-1,)), TensorSpec("x", ElementType.INT64)])


def test_fixed_records_come_back_bit_for_bit_from_bytes_and_from_values() -> None:
    records = [pack(FIXED, {"x": n, "y": [[n, np.nan, -0.0]]}) for n in range(5)]
    column = pack_rows(FIXED, [records[0].tobytes(), *records[1:]])
    assert unpack_rows(FIXED, column, 5).tobytes() == b"".join(record.tobytes() for record in records)


def test_a_column_of_an_earlier_version_which_has_no_planes_is_read() -> None:
    records = b"".join(pack(FIXED, {"x": n, "y": [[n, np.nan, -0.0]]}).tobytes() for n in range(5))
    assert unpack_rows(FIXED, zlib.compress(records), 5).tobytes() == records


def test_columns_of_small_integers_are_stored_by_planes_in_less_than_those_of_an_earlier_version() -> None:
    layout = Layout.of([TensorSpec("x", ElementType.INT64, (44,))])
    drawn = np.random.default_rng(1).poisson(3, (281, 44)).astype("<i8")
    column = pack_rows(layout, [row.tobytes() for row in drawn])
    assert np.array_equal(unpack_rows(layout, column, 281)["x"], drawn)
    assert len(column) < 0.75 * len(zlib.compress(drawn.tobytes(), 1))


@pytest.mark.parametrize("largest", [0, 255, 256, 2**16 - 1, 2**16, 2**24 - 1, 2**24, 2**32, 2**63 - 1, -1, -(2**63)])
def test_the_planes_of_integers_are_complete_however_large_one_of_them_is(largest: int) -> None:
    layout = Layout.of([TensorSpec("x", ElementType.INT64, (3,)), TensorSpec("y", ElementType.INT64)])
    drawn = np.random.default_rng(1).poisson(3, (50, 4)).astype("<i8")
    drawn[17, 2] = largest
    column = pack_rows(layout, [row.tobytes() for row in drawn])
    planes = np.frombuffer(drawn.tobytes(), np.uint8).reshape(50, 32).T
    if 0 <= largest < 2**24:
        low = max(1, (max(largest, int(drawn.max())).bit_length() + 7) // 8)
        assert column[:2] == bytes([2, low])
        assert zlib.decompress(column[2:]) == planes.reshape(4, 8, 50)[:, :low].tobytes()
    else:
        assert column[:1] == b"\1"
        assert zlib.decompress(column[1:]) == planes.tobytes()
    assert unpack_rows(layout, column, 50).tobytes() == drawn.tobytes()


def test_a_column_of_an_earlier_version_which_has_all_planes_is_read() -> None:
    layout = Layout.of([TensorSpec("x", ElementType.INT64, (4,))])
    drawn = np.random.default_rng(1).poisson(3, (50, 4)).astype("<i8")
    planes = np.frombuffer(drawn.tobytes(), np.uint8).reshape(50, 32).T
    assert unpack_rows(layout, b"\1" + zlib.compress(planes.tobytes()), 50).tobytes() == drawn.tobytes()


def test_columns_of_zeros_and_of_no_records_come_back() -> None:
    layout = Layout.of([TensorSpec("x", ElementType.INT64, (2,))])
    for count in (0, 1, 2, 281):
        records = np.zeros((count, 2), "<i8")
        column = pack_rows(layout, [row.tobytes() for row in records])
        assert unpack_rows(layout, column, count).tobytes() == records.tobytes()


def test_varying_records_come_back_as_they_were() -> None:
    records = [pack(VARYING, {"names": ["ü"] * n, "x": n}) for n in range(4)]
    values = unpack_rows(VARYING, pack_rows(VARYING, records), 4)
    codec = BitstreamSerDes().codec(VARYING)
    assert [codec.encode(values[n : n + 1]) for n in range(4)] == [codec.encode(record) for record in records]


@pytest.mark.parametrize("shape", [(4 << 20,), (-1,)], ids=["fixed", "varying"])
def test_a_large_record_is_packed_without_a_copy(shape: tuple[int]) -> None:
    layout = Layout.of([TensorSpec("x", ElementType.INT64, shape)])
    record = pack(layout, {"x": np.arange(4 << 20, dtype=np.int64) >> 12})
    encoded = BitstreamSerDes().codec(layout).encode(record)
    sizes = b"" if layout.fixed else np.array([len(encoded)], "<u4").tobytes()
    tracemalloc.start()
    column = pack_rows(layout, [record])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert zlib.decompress(column) == sizes + encoded
    assert peak < len(encoded) // 2
    assert np.array_equal(unpack_rows(layout, column, 1)["x"][0], record["x"][0])


@pytest.mark.parametrize("front", [b"", b"\1", b"\2\1"])
def test_a_damaged_column_takes_no_more_memory_than_its_records(front: bytes) -> None:
    column = front + zlib.compress(bytes(64 << 20))
    tracemalloc.start()
    with pytest.raises(InvalidError, match="holds more bytes than 3 times"):
        unpack_rows(WORDS, column, 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("size", [0, 30])
def test_a_damaged_column_of_varying_records_takes_no_more_memory_than_their_sizes_say(size: int) -> None:
    column = zlib.compress(np.full(3, size, "<u4").tobytes() + bytes(64 << 20))
    tracemalloc.start()
    with pytest.raises(InvalidError, match="its 3 sizes do not add up"):
        unpack_rows(VARYING, column, 3)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize("kept", [-1, -4])
def test_a_column_without_the_end_of_its_checksum_is_an_error(kept: int) -> None:
    record = pack(VARYING, {"names": ["a"], "x": 1})
    for layout, row in ((WORDS, bytes(16)), (FIXED, bytes(20)), (VARYING, record)):
        with pytest.raises(InvalidError, match="it has no end"):
            unpack_rows(layout, pack_rows(layout, [row] * 3)[:kept], 3)


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"no zlib",
        pack_numbers([1], "<i8"),
        *(kind + zlib.compress(held) for kind in (b"\1", b"\2\1") for held in (b"short", b"")),
        *(
            b"\1",
            b"\2",
            b"\2\0",
            b"\2\1",
            b"\2\x09",
            b"\2\0" + zlib.compress(b""),
            b"\2\x09" + zlib.compress(bytes(54)),
        ),
    ],
)
def test_a_damaged_column_is_an_error(damage: bytes) -> None:
    for layout in (FIXED, WORDS, VARYING):
        with pytest.raises(InvalidError):
            unpack_rows(layout, damage, 3)
    with pytest.raises(InvalidError):
        unpack_numbers(damage, "<i8", 3)
