"""The conformance suite of the SerDes: a new one inherits it and names itself."""

import math
import tracemalloc
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, ClassVar

import hypothesis.strategies as st
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings

from policybridge_core.errors import InvalidError, TooLargeError
from policybridge_serdes import VARIES, ElementType, Layout, SerDes, TensorSpec, Values, load_serdes, pack, unpack

from .strategies import bits_of, record, records

REFUSED = (InvalidError, TooLargeError)

# One property, several heirs: that is what a conformance suite is for.
PROPERTY = settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.differing_executors])

F32, F64 = np.dtype("<f4"), np.dtype("<f8")

EDGES: dict[str, tuple[ElementType, npt.NDArray[Any]]] = {
    "float nan": (ElementType.FLOAT, np.array([np.nan, 1], F32)),
    "float nan payloads and signs": (
        ElementType.FLOAT,
        np.array([0x7FC00001, 0xFFC00000, 0x7FA00000, 0xFFFFFFFF], "<u4").view(F32),
    ),
    "double nan payloads and signs": (
        ElementType.DOUBLE,
        np.array([0x7FF8000000000001, 0xFFF8000000000000, 0x7FF4000000000000], "<u8").view(F64),
    ),
    "float infinities": (ElementType.FLOAT, np.array([np.inf, -np.inf], F32)),
    "double infinities": (ElementType.DOUBLE, np.array([np.inf, -np.inf], F64)),
    "negative zero": (ElementType.FLOAT, np.array([-0.0, 0.0], F32)),
    "negative zero beside an infinity": (ElementType.DOUBLE, np.array([-0.0, np.inf], F64)),
    "float subnormals": (ElementType.FLOAT, np.array([1, 0x807FFFFF], "<u4").view(F32)),
    "double subnormals": (ElementType.DOUBLE, np.array([5e-324, -2.2e-308], F64)),
    "float extremes": (ElementType.FLOAT, np.array([np.finfo(F32).max, np.finfo(F32).min], F32)),
    "double extremes": (ElementType.DOUBLE, np.array([np.finfo(F64).max, 0.1], F64)),
    "int64 limits": (ElementType.INT64, np.array([-(2**63), 2**63 - 1], "<i8")),
    "uint64 limits": (ElementType.UINT64, np.array([0, 2**64 - 1], "<u8")),
    "bools": (ElementType.BOOL, np.array([True, False])),
    "strings": (ElementType.STRING, np.array(["", "žluťoučký 🐎", "a\0b", '"\\\n'], object)),
    "bytes": (ElementType.BYTES, np.array([b"", b"\0", b"\xff\xfe", b"plain"], object)),
}

OPEN_SHAPES = [
    ((VARIES,), (0,)),
    ((VARIES,), (3,)),
    ((VARIES, 2, VARIES), (2, 2, 3)),
    ((VARIES, VARIES), (0, 5)),
    ((VARIES, VARIES), (5, 0)),
    ((2, VARIES), (2, 0)),
    ((0, VARIES), (0, 4)),
]

VARYING = Layout.of(
    [
        TensorSpec("x", ElementType.INT64, (VARIES, VARIES)),
        TensorSpec("b", ElementType.BOOL, (VARIES,)),
        TensorSpec("s", ElementType.STRING, (VARIES,)),
    ]
)
VARYING_VALUES = pack(VARYING, {"x": [[1, 2], [3, 4]], "b": [True], "s": ["é", "b"]})
FIXED = Layout.of([TensorSpec("a", ElementType.INT8, (2,)), TensorSpec("f", ElementType.FLOAT, ())])
FIXED_VALUES = pack(FIXED, {"a": [1, -2], "f": 0.5})
INTEGERS = Layout.of([TensorSpec("a", ElementType.INT8, (2,)), TensorSpec("b", ElementType.INT8)])
INTEGERS_VALUES = pack(INTEGERS, {"a": [1, -2], "b": 3})
VALID = [
    pytest.param(layout, values, id=name)
    for name, layout, values in (
        ("varying", VARYING, VARYING_VALUES),
        ("fixed", FIXED, FIXED_VALUES),
        ("integers", INTEGERS, INTEGERS_VALUES),
    )
]

FEWER = pytest.param(Layout.of(FIXED.specs[:1]), pack(Layout.of(FIXED.specs[:1]), {"a": [1, -2]}), id="fewer")
NOTHING = pytest.param(Layout(()), record(Layout(())), id="nothing")

GOLDEN = Layout.of(
    [
        TensorSpec("a", ElementType.INT16, (2,)),
        TensorSpec("b", ElementType.BOOL, ()),
        TensorSpec("v", ElementType.FLOAT, (VARIES,)),
        TensorSpec("s", ElementType.STRING, (1,)),
        TensorSpec("y", ElementType.BYTES, (VARIES,)),
    ]
)
GOLDEN_VALUES = pack(GOLDEN, {"a": [1, -2], "b": True, "v": [1.5], "s": ["é"], "y": [b"\0", b""]})
FIXED_SPECS = (
    b'{"tensors":[{"name":"a","type":"int8_t","port":0,"shape":[2]},{"name":"f","type":"float","port":0,"shape":[]}]}'
)

ONE_FLOAT = Layout.of([TensorSpec("x", ElementType.FLOAT, (VARIES, VARIES))])
ONE_STRING = Layout.of([TensorSpec("s", ElementType.STRING, (VARIES,))])
ONE_BYTES = Layout.of([TensorSpec("y", ElementType.BYTES)])
ONE_BOOL = Layout.of([TensorSpec("b", ElementType.BOOL)])
ONE_OPEN_BOOL = Layout.of([TensorSpec("b", ElementType.BOOL, (VARIES,))])
ONE_UINT64 = Layout.of([TensorSpec("u", ElementType.UINT64)])

LYING_SPECS = [
    b'{"tensors":%b}' % specs
    for specs in (
        b"1",
        b"[1]",
        b"[[]]",
        b"[" * 100_000 + b"]",
        b'[{"name":"x"}]',
        b'[{"name":"","type":"float","shape":[]}]',
        b'[{"name":"x","type":"complex","shape":[]}]',
        b'[{"name":"x","type":"float","shape":[-2]}]',
        b'[{"name":"x","type":"float","shape":[1073741824]}]',
        b'[{"name":"x","type":"float","shape":[0,4294967296]}]',
        b'[{"name":"x","type":"float","shape":[0,2147483647,2147483647,2147483647]}]',
        b'[{"name":"x","type":"float","shape":[%b]}]' % b",".join([b"1"] * 65),
        b'[{"name":"x","type":"float","shape":[%b,%b]}]' % (b"9" * 4000, b"9" * 4000),
        b'[{"name":"x","type":"float","shape":[%b]}]' % (b"9" * 5000),
        b'[{"name":"x","type":"float","shape":[1.5]}]',
        b'[{"name":"\xff","type":"float","shape":[]}]',
        b'[{"name":"x","type":"int8_t","shape":[0]},{"name":"x","type":"float","shape":[0]}]',
        b",".join(
            [
                b'[{"name":"a","type":"int8_t","shape":[2000000000]}',
                b'{"name":"b","type":"int8_t","shape":[2000000000]}]',
            ]
        ),
    )
]


def counting(kind: ElementType, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Make a tensor of small values that differ."""
    count = math.prod(shape)
    texts = {ElementType.BYTES: [b"%d" % n for n in range(count)], ElementType.STRING: list(map(str, range(count)))}
    if kind in texts:
        array = np.empty(count, object)
        array[:] = texts[kind]
        return array.reshape(shape)
    return (np.arange(count) % 2 if kind is ElementType.BOOL else np.arange(count)).astype(kind.dtype).reshape(shape)


class SerDesConformance:
    """What every SerDes must do; ``name`` says which one this is."""

    name: ClassVar[str]
    fixed_bytes: ClassVar[bytes]
    varying_bytes: ClassVar[bytes]
    described_bytes: ClassVar[bytes]
    lies: ClassVar[Sequence[tuple[Layout | None, bytes]]]
    """Messages that must be refused; the layout of the session form, or ``None`` for the self-describing one."""

    @property
    def serdes(self) -> SerDes:
        return load_serdes(self.name)

    def check_round_trip(self, layout: Layout, values: Values) -> None:
        codec = self.serdes.codec(layout)
        assert bits_of(layout, codec.decode(codec.encode(values))) == bits_of(layout, values)
        again, described = self.serdes.decode(self.serdes.encode(values, layout))
        assert again == layout
        assert bits_of(layout, described) == bits_of(layout, values)

    @pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 3), (1, 2, 1, 2), (0,), (0, 5), (5, 0)], ids=str)
    @pytest.mark.parametrize("kind", ElementType)
    def test_every_element_type_returns_in_every_fixed_shape(self, kind: ElementType, shape: tuple[int, ...]) -> None:
        layout = Layout.of([TensorSpec("t", kind, shape)])
        self.check_round_trip(layout, record(layout, counting(kind, shape)))

    @pytest.mark.parametrize(("shape", "actual"), OPEN_SHAPES, ids=str)
    @pytest.mark.parametrize("kind", ElementType)
    def test_every_element_type_returns_where_dimensions_vary(
        self, kind: ElementType, shape: tuple[int, ...], actual: tuple[int, ...]
    ) -> None:
        layout = Layout.of([TensorSpec("t", kind, shape), TensorSpec("after", ElementType.UINT16)])
        self.check_round_trip(layout, record(layout, counting(kind, actual), np.array([7], "<u2")))

    @pytest.mark.parametrize("varies", [False, True], ids=["fixed", "varying"])
    @pytest.mark.parametrize("edge", EDGES)
    def test_edges_of_every_type_return_bit_for_bit(self, edge: str, varies: bool) -> None:
        kind, array = EDGES[edge]
        layout = Layout.of([TensorSpec("t", kind, (VARIES,) if varies else array.shape)])
        self.check_round_trip(layout, record(layout, array))

    @pytest.mark.parametrize("edge", EDGES)
    def test_scalars_return_bit_for_bit(self, edge: str) -> None:
        kind, array = EDGES[edge]
        layout = Layout.of(TensorSpec(f"t{index}", kind, ()) for index in range(array.size))
        self.check_round_trip(
            layout, record(layout, *(array[index : index + 1].reshape(()) for index in range(len(array))))
        )

    def test_a_layout_without_tensors_has_a_value(self) -> None:
        self.check_round_trip(Layout(()), record(Layout(())))

    @pytest.mark.parametrize("name", ["ключ", "a b", '"', "\0", "🐎", "f0", " "])
    def test_names_may_be_any_text(self, name: str) -> None:
        layout = Layout.of([TensorSpec(name, ElementType.INT8), TensorSpec(name * 2, ElementType.STRING)])
        self.check_round_trip(layout, record(layout, np.array([1], "i1"), np.array(["x"], object)))

    def test_tensors_in_any_memory_order_are_sent_row_by_row(self) -> None:
        layout = Layout.of(
            [TensorSpec("t", ElementType.INT32, (VARIES, 3)), TensorSpec("s", ElementType.STRING, (2, 2))]
        )
        texts = np.array([["a", "b"], ["c", "d"]], object)
        values = record(layout, np.arange(6, dtype="<i4").reshape(3, 2).T, texts.T)
        decoded = unpack(layout, (codec := self.serdes.codec(layout)).decode(codec.encode(values)))
        assert decoded["t"].tolist() == [[0, 2, 4], [1, 3, 5]]
        assert decoded["s"].tolist() == [["a", "c"], ["b", "d"]]

    @PROPERTY
    @given(records())
    def test_any_value_of_any_layout_returns_bit_for_bit(self, case: tuple[Layout, Values]) -> None:
        self.check_round_trip(*case)

    @pytest.mark.parametrize(("layout", "values"), VALID)
    def test_no_beginning_of_a_message_is_a_message(self, layout: Layout, values: Values) -> None:
        codec = self.serdes.codec(layout)
        whole, described = codec.encode(values), self.serdes.encode(values, layout)
        for end in range(len(whole)):
            with pytest.raises(InvalidError):
                codec.decode(whole[:end])
        for end in range(len(described)):
            with pytest.raises(InvalidError):
                self.serdes.decode(described[:end])

    @pytest.mark.parametrize(("layout", "values"), VALID)
    def test_nothing_may_follow_a_message(self, layout: Layout, values: Values) -> None:
        codec = self.serdes.codec(layout)
        with pytest.raises(InvalidError):
            codec.decode(codec.encode(values) + b"\0")
        with pytest.raises(InvalidError):
            self.serdes.decode(self.serdes.encode(values, layout) + b"\0")

    @PROPERTY
    @given(data=st.binary(max_size=200), layout=st.sampled_from([VARYING, FIXED, INTEGERS]))
    def test_random_bytes_are_decoded_or_refused(self, data: bytes, layout: Layout) -> None:
        for decode in (self.serdes.codec(layout).decode, self.serdes.decode):
            with suppress(*REFUSED):
                decode(data)

    @PROPERTY
    @given(
        case=records(),
        described=st.booleans(),
        where=st.floats(0, 1, exclude_max=True),
        cut=st.integers(0, 3),
        put=st.binary(max_size=4),
    )
    def test_a_damaged_message_is_decoded_or_refused(
        self, case: tuple[Layout, Values], described: bool, where: float, cut: int, put: bytes
    ) -> None:
        layout, values = case
        codec = self.serdes.codec(layout)
        data = self.serdes.encode(values, layout) if described else codec.encode(values)
        place = int(where * len(data))
        damaged = data[:place] + put + data[place + cut :]
        with suppress(*REFUSED):
            self.serdes.decode(damaged) if described else codec.decode(damaged)

    @pytest.mark.parametrize(("layout", "values"), [VALID[0], FEWER, NOTHING])
    def test_values_of_another_layout_are_refused(self, layout: Layout, values: Values) -> None:
        sent = self.serdes.codec(layout).encode(values)
        with pytest.raises(InvalidError):
            self.serdes.codec(FIXED).decode(sent)

    def test_a_lie_costs_its_sender_an_error_and_nobody_memory(self) -> None:
        for layout, lie in self.lies:
            decode = self.serdes.decode if layout is None else self.serdes.codec(layout).decode
            tracemalloc.start()
            with pytest.raises(REFUSED):
                decode(lie)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 4 << 20, lie[:80]

    def test_the_session_form_of_varying_tensors_is_pinned(self) -> None:
        assert self.serdes.codec(GOLDEN).encode(GOLDEN_VALUES) == self.varying_bytes
        assert bits_of(GOLDEN, self.serdes.codec(GOLDEN).decode(self.varying_bytes)) == bits_of(GOLDEN, GOLDEN_VALUES)

    def test_the_session_form_of_fixed_tensors_is_pinned(self) -> None:
        assert self.serdes.codec(FIXED).encode(FIXED_VALUES) == self.fixed_bytes
        assert bits_of(FIXED, self.serdes.codec(FIXED).decode(self.fixed_bytes)) == bits_of(FIXED, FIXED_VALUES)

    def test_the_self_describing_form_is_pinned(self) -> None:
        assert self.serdes.encode(FIXED_VALUES, FIXED) == self.described_bytes
        layout, values = self.serdes.decode(self.described_bytes)
        assert layout == FIXED
        assert bits_of(layout, values) == bits_of(FIXED, FIXED_VALUES)
