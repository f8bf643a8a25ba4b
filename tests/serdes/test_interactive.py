"""LLVM's interactive stream: the same events however it arrives, and nothing else is taken for one."""

import tracemalloc
from collections.abc import Iterator
from itertools import pairwise

import hypothesis.strategies as st
import pytest
from hypothesis import given

from policybridge_core.errors import InvalidError, TooLargeError
from policybridge_serdes import VARIES, ElementType, Layout, Outcome, Signature, TensorSpec
from policybridge_serdes.interactive import (
    MAX_LINE,
    Context,
    Event,
    Header,
    InteractiveReader,
    context_line,
    header_line,
    observation_lines,
    outcome_line,
)
from policybridge_serdes.limits import MessageLimits

from .strategies import layouts

ADVICE = TensorSpec("inlining_decision", ElementType.INT64)
INLINER = Signature.of([TensorSpec(name, ElementType.INT64) for name in ("callee", "caller")], ADVICE)
HEADER = (
    b'{"features":[{"name":"callee","type":"int64_t","port":0,"shape":[1]},'
    b'{"name":"caller","type":"int64_t","port":0,"shape":[1]}],'
    b'"advice":{"name":"inlining_decision","type":"int64_t","port":0,"shape":[1]}}\n'
)
OPEN = Signature.of([TensorSpec("v", ElementType.INT8, (VARIES,))], ADVICE)
# Newlines and braces in the tensors must not be taken for the stream's own.
PAYLOAD = b'\n{"context":"x"}'


def begun(signature: Signature = INLINER) -> InteractiveReader:
    reader = InteractiveReader()
    assert reader.feed(header_line(signature)) == [Header(signature)]
    return reader


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[Event]]:
    """Write up to three modules one after another, and say what must be read."""
    data, events = b"", list[Event]()
    for layout in draw(st.lists(layouts(), min_size=1, max_size=3)):
        signature = Signature(layout, ADVICE)
        data, events = data + header_line(signature), [*events, Header(signature)]
        for number, context in enumerate(draw(st.lists(st.none() | st.text(st.characters(codec="utf-8")), max_size=5))):
            if context is not None:
                data, events = data + context_line(context), [*events, Context(context)]
                continue
            size = layout.size if layout.fixed else draw(st.integers(0, 30))
            payload = draw(st.binary(min_size=size, max_size=size) | st.just(b"\n" * size))
            data += observation_lines(number, payload, fixed=layout.fixed)
            events = [*events, payload]
    return data, events


def pieces(data: bytes, cuts: list[int]) -> Iterator[bytes]:
    edges = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return (data[start:end] for start, end in pairwise(edges))


@given(streams(), st.lists(st.integers(0, 10_000), max_size=20))
def test_pieces_of_any_size_give_the_same_events(stream: tuple[bytes, list[Event]], cuts: list[int]) -> None:
    data, events = stream
    reader = InteractiveReader()
    assert [event for piece in pieces(data, cuts) for event in reader.feed(piece)] == events


@given(streams())
def test_single_bytes_give_the_same_events(stream: tuple[bytes, list[Event]]) -> None:
    data, events = stream
    reader = InteractiveReader()
    assert [event for at in range(len(data)) for event in reader.feed(data[at : at + 1])] == events


def test_the_lines_are_written_as_llvm_does() -> None:
    assert header_line(INLINER) == HEADER
    assert context_line("main") == b'{"context":"main"}\n'
    assert observation_lines(7, PAYLOAD, fixed=True) == b'{"observation":7}\n' + PAYLOAD + b"\n"


def test_varying_tensors_are_announced_with_their_size() -> None:
    assert observation_lines(7, b"ab", fixed=False) == b'{"observation":7,"bytes":2}\nab\n'


def test_an_observation_is_given_as_soon_as_its_last_byte_is_there() -> None:
    reader = begun()
    data = observation_lines(0, PAYLOAD, fixed=True)
    assert reader.feed(data[:-1]) == []
    assert reader.feed(data[-1:]) == [PAYLOAD]


def test_a_second_header_changes_what_follows() -> None:
    reader = begun()
    assert reader.feed(observation_lines(0, bytes(16), fixed=True)) == [bytes(16)]
    other = Signature.of([TensorSpec("li_size", ElementType.INT8)], ADVICE)
    assert reader.feed(header_line(other) + observation_lines(0, b"\5", fixed=True)) == [Header(other), b"\5"]


def test_a_header_that_came_before_is_not_read_again_unless_it_is_long() -> None:
    for count, is_kept in ((3, True), (600, False)):
        specs = [TensorSpec(f"{count} {number}", ElementType.INT64) for number in range(count)]
        line = header_line(Signature.of(specs, ADVICE))
        first, again = (_header(InteractiveReader().feed(line)) for _ in range(2))
        assert first == again
        assert (first is again) == is_kept


def _header(events: list[Event]) -> Signature:
    (header,) = events
    assert isinstance(header, Header)
    return header.signature


def test_a_header_that_came_before_is_refused_where_the_limits_are_narrower() -> None:
    assert InteractiveReader().feed(header_line(INLINER))
    for narrow in (MessageLimits(features=1), MessageLimits(observation_bytes=8)):
        with pytest.raises(TooLargeError):
            InteractiveReader(narrow).feed(header_line(INLINER))


def test_a_fixed_observation_may_say_its_size() -> None:
    data = observation_lines(0, PAYLOAD, fixed=False)
    assert begun().feed(data) == [PAYLOAD]


@pytest.mark.parametrize(
    "garbage",
    [
        b"\n",
        b"GET / HTTP/1.1\r\n",
        b"\x80\0\n",
        b"{}\n",
        b'{"observation":0}\n' + bytes(16) + b"x",
        b'{"observation":x}\n' + bytes(17),
        b'{"observation":}\n' + bytes(16) + b"\n",
        b'{"observation":-}\n' + bytes(16) + b"\n",
        b'{"observation":0]\n' + bytes(16) + b"\n",
        b'{"observation":0,"bytes":17}\n' + bytes(16) + b"\n",
        b'{"observation":0,"bytes":"16"}\n' + bytes(16) + b"\n",
        b'{"context":3}\n',
        b'{"context":"\xff"}\n',
        b'{"context":"x"\n',
        b'{"context":' + b"[" * 100_000 + b"\n",
        b'{"features":[]}\n',
        b'{"features":[1],"advice":1}\n',
        b'{"features":' + b"[" * 100_000 + b"\n",
        b'{"features":[],"advice":{"name":"a","type":"half","shape":[1]}}\n',
        HEADER.replace(b"caller", b"callee"),
    ],
    ids=lambda garbage: repr(garbage[:40]),
)
def test_garbage_is_refused(garbage: bytes) -> None:
    with pytest.raises(InvalidError):
        begun().feed(garbage)
    reader = begun()
    with pytest.raises(InvalidError):
        [reader.feed(garbage[at : at + 1]) for at in range(len(garbage))]


def test_the_error_shows_the_line_that_is_none_of_llvms() -> None:
    with pytest.raises(InvalidError, match="GET / HTTP"):
        begun().feed(b"GET / HTTP/1.1\r\n")


def test_an_observation_before_the_header_is_refused() -> None:
    with pytest.raises(InvalidError, match="before the header"):
        InteractiveReader().feed(b'{"observation":0}\n')


@pytest.mark.parametrize("line", [b'{"observation":0}\n', b'{"observation":0,"bytes":-1}\n'])
def test_a_varying_observation_without_a_size_is_refused(line: bytes) -> None:
    with pytest.raises(InvalidError, match='"bytes":B'):
        begun(OPEN).feed(line)


@pytest.mark.parametrize("count", [2**29 - 1, 2**30, 2**62])
def test_a_header_that_promises_gigabytes_is_refused(count: int) -> None:
    line = HEADER.replace(b'"shape":[1]', b'"shape":[%d]' % count, 1)
    with pytest.raises(TooLargeError):
        InteractiveReader().feed(line)


def test_an_observation_that_promises_gigabytes_is_refused() -> None:
    with pytest.raises(TooLargeError, match="4294967296 bytes"):
        begun(OPEN).feed(b'{"observation":0,"bytes":4294967296}\n')


def test_the_limit_holds_for_the_advice_too() -> None:
    signature = Signature.of([TensorSpec("x", ElementType.INT8)], TensorSpec("a", ElementType.INT8, (100,)))
    with pytest.raises(TooLargeError, match="100 bytes; at most 99"):
        InteractiveReader(MessageLimits(99)).feed(header_line(signature))


@pytest.mark.parametrize("size", [1 << 10, 1 << 16, 1 << 22])
def test_a_line_without_end_is_refused_before_it_fills_the_memory(size: int) -> None:
    reader, piece = InteractiveReader(), b'{"context":"' + b"x" * size
    tracemalloc.start()
    with pytest.raises(TooLargeError, match="longer than"):
        [reader.feed(piece) for _ in range(2 * MAX_LINE // size + 1)]
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 * MAX_LINE


@pytest.mark.parametrize("size", [1 << 14, 1 << 30])
def test_the_longest_line_is_taken_and_a_longer_one_refused_in_pieces_of_any_size(size: int) -> None:
    name = "x" * (MAX_LINE - len(context_line("")))
    longest, longer = context_line(name), context_line(name + "x")
    reader = InteractiveReader()
    assert [event for at in range(0, MAX_LINE, size) for event in reader.feed(longest[at : at + size])] == [
        Context(name)
    ]
    with pytest.raises(TooLargeError):
        [reader.feed(longer[at : at + size]) for at in range(0, len(longer), size)]


def test_a_context_that_is_no_text_is_not_written() -> None:
    with pytest.raises(InvalidError, match="no Unicode text"):
        context_line("\udcff.c")


def test_features_of_no_bytes_are_observed() -> None:
    empty = Signature(Layout(()), ADVICE)
    assert begun(empty).feed(b'{"observation":0}\n\n{"observation":1}\n\n') == [b"", b""]


@given(
    st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1), st.floats(allow_nan=False, allow_infinity=False))
)
def test_an_outcome_is_read_as_it_was_written(values: dict[str, float]) -> None:
    outcome = Outcome(values, "größer")
    assert begun().feed(outcome_line(outcome)) == [outcome]


@pytest.mark.parametrize(
    "line",
    [
        b'{"outcome":3}',
        b'{"outcome":{"values":{"x":"y"}}}',
        b'{"outcome":{"values":{"x":NaN}}}',
        b'{"outcome":{"values":{"x":1e999}}}',
        b'{"outcome":{"values":{"":1}}}',
        b'{"outcome":{"status":1}}',
    ],
)
def test_an_outcome_that_is_none_is_refused(line: bytes) -> None:
    with pytest.raises(InvalidError):
        begun().feed(line + b"\n")
