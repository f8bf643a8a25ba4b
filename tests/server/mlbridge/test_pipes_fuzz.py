"""Whatever bytes a compiler sends: an error that names what is wrong, never a crash, a hang or memory without end."""

import json
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from policybridge_core.errors import InvalidError, PolicyBridgeError, TooLargeError
from policybridge_serdes import ElementType, Layout, TensorSpec, tensor
from policybridge_server.mlbridge.pipes.formats import Format, load_format
from policybridge_server.mlbridge.pipes.frames import FrameReader, frame
from policybridge_server.mlbridge.pipes.observations import ObservationReader

LIMIT = 1 << 16

HEADER = b'{"features":[{"name":"x","type":"int32_t","port":6020,"shape":[1]}]}\n'
BYTES_SEEDS = [
    HEADER + b"1234\n",
    HEADER.replace(b"[1]", b"[0]") + b"\n",
    HEADER.replace(b"int32_t", b"double") + b"\n",
]
JSON_SEEDS = [b'{"x":[1.5,inf,-nan],"y":3}', b'{"x":"a\\"nan"}', b'{"x":[]}', b'{"x":true,"y":[1,2.5]}']


@st.composite
def mutated(draw: st.DrawFn, seeds: list[bytes]) -> bytes:
    """Give a message, with a few pieces of it cut out, put in or repeated."""
    data = draw(st.sampled_from(seeds))
    for _ in range(draw(st.integers(0, 4))):
        start, end = sorted(draw(st.lists(st.integers(0, len(data)), min_size=2, max_size=2)))
        piece = draw(
            st.binary(max_size=8) | st.sampled_from([b'"', b"[", b"-1", b"1e999", b"nan", b"\\", data[start:end] * 3])
        )
        data = data[:start] + piece + data[end:]
    return data


def read(form: Format, message: bytes) -> None:
    """Read the message up to the row that a policy would get; anything but a row or our own errors fails the test."""
    try:
        observed = form.read(message)
        row = ObservationReader({}, {}, list[Layout]().append).row(observed)
    except (InvalidError, TooLargeError):
        return
    if isinstance(row, bytes):
        assert len(row) == observed.layout.size


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(max_size=300), mutated(BYTES_SEEDS)))
def test_any_bytes_are_an_observation_or_an_error(message: bytes) -> None:
    read(load_format("bytes"), message)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(max_size=300), mutated(JSON_SEEDS)))
def test_any_json_is_an_observation_or_an_error(message: bytes) -> None:
    read(load_format("json"), message)


@settings(max_examples=100, deadline=None)
@given(st.lists(mutated(BYTES_SEEDS), max_size=6))
@example([BYTES_SEEDS[0], b"\n\n"])
def test_messages_that_change_are_read_as_if_each_came_first(messages: list[bytes]) -> None:
    form = load_format("bytes")
    for message in messages:
        alone = load_format("bytes")
        assert outcome(form, message) == outcome(alone, message)


def outcome(form: Format, message: bytes) -> object:
    try:
        observed = form.read(message)
    except PolicyBridgeError as error:
        return str(error)
    return observed.layout, observed.packed


@settings(max_examples=300, deadline=None)
@given(st.lists(st.binary(max_size=100), max_size=5), st.lists(st.integers(1, 40), min_size=1, max_size=50))
def test_frames_come_out_as_they_went_in_however_they_are_cut(messages: list[bytes], cuts: list[int]) -> None:
    reader, data = FrameReader(50), b"".join(map(frame, messages))
    seen: list[bytes | TooLargeError] = []
    while data:
        cut = cuts[len(data) % len(cuts)]
        seen += reader.feed(data[:cut])
        data = data[cut:]
    assert [isinstance(one, TooLargeError) for one in seen] == [len(message) > 50 for message in messages]
    assert [one for one in seen if isinstance(one, bytes)] == [message for message in messages if len(message) <= 50]
    assert not reader.begun


@settings(max_examples=100, deadline=None)
@given(st.lists(st.binary(max_size=200), max_size=20))
def test_a_reader_of_frames_never_holds_more_than_the_limit_and_a_piece(pieces: list[bytes]) -> None:
    reader = FrameReader(50)
    for piece in pieces:
        reader.feed(piece)
        assert reader._held <= 50 + 8 + len(piece)


@pytest.mark.parametrize(
    "message",
    [b"[" * 100_000, b'{"x":' * 50_000, b'{"x":[' + b"[" * 100_000 + b"nan", b'"' * 100_001 + b"nan",
     b'{"x":"' + b'\\"' * 100_000 + b"nan", b'{"x":' + b"9" * 100_000 + b"}", b'{"nan":' + b"9" * 100_000 + b"}",
     b'{"x":18446744073709551616}', b'{"x":[-1,18446744073709551615]}', b'{"x":"\\ud800"}', b'{"\\ud800nan":1}',
     b'{"x":null}', b'{"x":{"y":1}}', b'{"x":[1,"a"]}', b'{"x":[true,1]}', b"nan", b'{"":1}'],
)  # fmt: skip
def test_json_that_is_no_object_of_features_is_invalid(message: bytes) -> None:
    form = load_format("json")
    with pytest.raises(InvalidError):
        ObservationReader({}, {}, list[Layout]().append).row(form.read(message))


@pytest.mark.parametrize("form", ["bytes", "json"])
def test_the_memory_of_a_message_is_bounded_by_its_size(form: str) -> None:
    seed = b'{"features":[' + b'{"name":"x","type":"float","port":0,"shape":[1]},' * 20_000 if form == "bytes" else None
    message = seed or b'{"x":[' + b"1.5," * 200_000 + b"nan]}"
    tracemalloc.start()
    try:
        read(load_format(form), message)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40 * len(message)


def test_a_header_is_at_most_a_line_long() -> None:
    specs = b",".join(b'{"name":"x%d","type":"float","port":0,"shape":[1]}' % index for index in range(30_000))
    with pytest.raises(TooLargeError, match="header"):
        load_format("bytes").read(b'{"features":[' + specs + b"]}\n")


@settings(max_examples=300, deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=4))
def test_a_float_reply_is_read_by_the_compiler_as_the_float_that_it_is(numbers: list[float]) -> None:
    spec = TensorSpec("advice", ElementType.FLOAT, (-1,))
    if 2.0**52 <= abs(numbers[0]) <= 2.0**63:
        with pytest.raises(InvalidError, match="for an integer"):
            load_format("json").reply(spec, np.array(numbers, np.float32))
        return
    reply = load_format("json").reply(spec, np.array(numbers, np.float32))
    out = json.loads(reply)["out"]
    # What makes the compiler's parser take all for integers.
    assert not (math.isfinite(out[0]) and float(out[0]).is_integer() and abs(out[0]) <= 2.0**63)
    with np.errstate(over="ignore", under="ignore"):
        assert np.array(out).astype(np.float32).tobytes() == np.array(numbers, np.float32).tobytes()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), st.lists(st.integers(-9, 9) | st.floats(-1, 1))), max_size=5))
def test_json_values_arrive_whatever_came_before(sent: list[tuple[str, list[float]]]) -> None:
    form, bound = load_format("json"), [Layout(())]
    observations = ObservationReader({}, {}, bound.append)
    for name, numbers in sent:
        row = observations.row(form.read(json.dumps({name: numbers}).encode()))
        assert not isinstance(row, bytes)
        assert tensor(bound[-1].by_name[name], row).tolist() == numbers


@pytest.mark.parametrize("form", ["bytes", "json"])
def test_a_length_that_changes_is_bound_anew_once(form: str) -> None:
    read, bound = load_format(form), list[Layout]()
    observations = ObservationReader({}, {}, bound.append)
    for size in (1, 2, 3, 2, 0):
        header = HEADER.replace(b"[1]", b"[%d]" % size)
        message = header + bytes(4 * size) + b"\n" if form == "bytes" else json.dumps({"x": [0.5] * size}).encode()
        observations.row(read.read(message))
    assert [layout.specs[0].shape for layout in bound] == [(1,), (-1,)]


def test_a_feature_that_the_policy_declares_is_bound_as_declared() -> None:
    declared, bound = TensorSpec("x", ElementType.DOUBLE, (-1,)), list[Layout]()
    observations = ObservationReader({}, {"x": declared}, bound.append)
    row = observations.row(load_format("bytes").read(HEADER + b"\7\0\0\0\n"))
    assert not isinstance(row, bytes)
    assert tensor(declared, row).tolist() == [7.0]
    assert bound == [Layout((declared,))]
