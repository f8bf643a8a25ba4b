"""Messages of megabytes are read without a copy of their values, and are read as small ones are."""

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from policybridge.v1 import policy_service_pb2, tensor_pb2
from policybridge_core.errors import InvalidError, TooLargeError
from policybridge_serdes import ElementType, Layout, Signature, TensorSpec, Values, join, load_serdes, pack
from policybridge_serdes.interactive import InteractiveReader, header_line, observation_lines
from policybridge_serdes.limits import LARGE
from policybridge_serdes.protobuf import layout_to_pb
from policybridge_serdes.protobuf_fields import divide

COUNT = LARGE
"""Elements, which take eight times as many bytes as a message that is large."""

SIZE = 8 * COUNT
ALONE = Layout.of([TensorSpec("x", ElementType.INT64, (COUNT,))])
VARYING = Layout.of([TensorSpec("x", ElementType.INT64, (-1,)), TensorSpec("name", ElementType.STRING, (1,))])
SEVERAL = Layout.of(
    [
        TensorSpec("on", ElementType.BOOL, (3,)),
        TensorSpec("x", ElementType.INT64, (COUNT,)),
        TensorSpec("y", ElementType.FLOAT, (COUNT,)),
    ]
)
NUMBERS = np.arange(COUNT, dtype=np.int64) * 7919
ADVICE = TensorSpec("advice", ElementType.INT64, (1,))


def record(layout: Layout) -> Values:
    values: dict[str, Any] = {"x": NUMBERS, "y": NUMBERS.astype(np.float32), "on": [True, False, True]}
    return pack(layout, {name: values.get(name, ["größer"]) for name in layout.by_name})


def peak(work: Callable[[], object]) -> int:
    """Give the bytes that ``work`` holds at most, its result included."""
    tracemalloc.start()
    try:
        kept = work()
        return tracemalloc.get_traced_memory()[1] if kept is not None else 0
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("layout", [ALONE, SEVERAL, VARYING], ids=["alone", "several", "varying"])
@pytest.mark.parametrize("serdes", ["bitstream", "protobuf"])
def test_a_large_record_is_read_as_it_was_written(serdes: str, layout: Layout) -> None:
    values, made = record(layout), load_serdes(serdes)
    found, read = made.decode(made.encode(values, layout))
    assert found == layout
    in_session = made.codec(layout).decode(made.codec(layout).encode(values))
    for name in layout.by_name:
        assert np.array_equal(read[name][0], values[name][0])
        assert np.array_equal(in_session[name][0], values[name][0])


@pytest.mark.parametrize("layout", [ALONE, VARYING], ids=["alone", "varying"])
@pytest.mark.parametrize("serdes", ["bitstream", "protobuf"])
def test_the_values_of_a_large_record_are_not_copied(serdes: str, layout: Layout) -> None:
    made = load_serdes(serdes)
    data, packed = made.encode(record(layout), layout), made.codec(layout).encode(record(layout))
    codec = made.codec(layout)
    assert peak(lambda: made.decode(data)) < SIZE // 2
    assert peak(lambda: codec.decode(packed)) < SIZE // 2


def test_a_large_record_that_is_evaluated_alone_is_not_copied_and_cannot_be_written() -> None:
    values = record(ALONE)
    assert peak(lambda: join(ALONE, [values])) < SIZE // 2
    joined = join(ALONE, [values])
    assert joined.tobytes() == values.tobytes()
    assert not joined.flags.writeable


def test_several_large_records_are_joined_in_their_order() -> None:
    first, second = record(ALONE), pack(ALONE, {"x": NUMBERS + 1})
    joined = join(ALONE, [first, second.tobytes()])
    assert joined.tobytes() == first.tobytes() + second.tobytes()


def test_a_large_observation_in_pieces_grows_in_one_buffer() -> None:
    signature = Signature(ALONE, ADVICE)
    payload = NUMBERS.tobytes()
    lines = header_line(signature) + observation_lines(0, payload, fixed=True) + b'{"context":"f"}\n'
    pieces = [lines[start : start + (1 << 18)] for start in range(0, len(lines), 1 << 18)]
    reader = InteractiveReader()
    events = [event for piece in pieces for event in reader.feed(piece)]
    assert events[1] == payload
    assert len(events) == 3
    assert not reader.begun
    again = InteractiveReader()
    assert peak(lambda: [event for piece in pieces for event in again.feed(piece)]) < SIZE * 3 // 2


def described(*parts: tuple[str, bytes]) -> bytes:
    """Write a DescribedTensors whose fields come in this order, as often as they are given."""
    kind = tensor_pb2.DescribedTensors.DESCRIPTOR
    return b"".join(
        bytes([kind.fields_by_name[name].number << 3 | 2]) + _varint(len(data)) + data for name, data in parts
    )


def _varint(number: int) -> bytes:
    low = [number >> shift & 127 for shift in range(0, max(number.bit_length(), 1), 7)]
    return bytes(byte | 128 for byte in low[:-1]) + bytes(low[-1:])


def test_fields_of_a_large_message_that_come_twice_are_merged_as_the_parser_merges_them() -> None:
    first = tensor_pb2.Tensors(data=[b"\1\0\1"]).SerializeToString()
    second = tensor_pb2.Tensors(data=[NUMBERS.tobytes()]).SerializeToString()
    third = tensor_pb2.Tensors(data=[NUMBERS.astype("<f4").tobytes()]).SerializeToString()
    layout = layout_to_pb(SEVERAL).SerializeToString()
    data = described(("values", first), ("layout", layout), ("values", second), ("values", third))
    assert len(tensor_pb2.DescribedTensors.FromString(data).values.data) == 3
    found, read = load_serdes("protobuf").decode(data)
    assert found == SEVERAL
    assert read.tobytes() == record(SEVERAL).tobytes()


def test_a_small_tensor_of_a_large_message_does_not_keep_the_message_in_memory() -> None:
    layout = Layout.of([TensorSpec("x", ElementType.INT64, (-1,))])
    codec = load_serdes("protobuf").codec(layout)
    tracemalloc.start()
    data = codec.encode(pack(layout, {"x": [1, 2, 3]})) + b"\x7a" + _varint(8 * LARGE) + bytes(8 * LARGE)
    read = codec.decode(data)
    del data
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert read["x"][0].tolist() == [1, 2, 3]
    assert held < LARGE


@pytest.mark.parametrize("lacking", ["layout", "values"])
def test_a_large_message_without_its_layout_or_values_is_refused(lacking: str) -> None:
    tensors = tensor_pb2.Tensors(data=[bytes(2 * LARGE)]).SerializeToString()
    unknown = b"\x7a" + _varint(2 * LARGE) + bytes(2 * LARGE)
    whole = {"layout": layout_to_pb(ALONE).SerializeToString() + unknown, "values": tensors}
    del whole[lacking]
    with pytest.raises(InvalidError, match="lacks its layout or its values"):
        load_serdes("protobuf").decode(described(*whole.items()))


def test_a_large_message_that_is_cut_off_or_has_a_group_is_refused() -> None:
    data = load_serdes("protobuf").encode(record(ALONE), ALONE)
    with pytest.raises(InvalidError, match="cut off"):
        load_serdes("protobuf").decode(data[:-1])
    with pytest.raises(InvalidError, match="group"):
        load_serdes("protobuf").decode(data + b"\x7b\x7c")


def test_a_large_message_of_very_many_fields_is_refused_before_it_is_taken_apart() -> None:
    kind = policy_service_pb2.EvaluateRequest.DESCRIPTOR
    with pytest.raises(TooLargeError, match="fields"):
        divide(kind, b"\x78\x01" * LARGE, (2, 3))


def test_the_parts_of_a_message_are_taken_out_in_their_order_and_the_rest_stays() -> None:
    policy = policy_service_pb2.PolicyReference(name="inliner")
    request = policy_service_pb2.EvaluateRequest(policy=policy)
    request.encoded.data = b"abc"
    data = request.SerializeToString() + b"\x12\x00"
    rest, taken = divide(policy_service_pb2.EvaluateRequest.DESCRIPTOR, data, (2, 3))
    assert policy_service_pb2.EvaluateRequest.FromString(rest) == policy_service_pb2.EvaluateRequest(policy=policy)
    assert [(number, bytes(part)) for number, part in taken] == [(3, b"\x12\x03abc"), (2, b"")]
