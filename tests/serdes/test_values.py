"""Values: what fits a spec, and what the error says where it does not."""

import re
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from policybridge_core.errors import InvalidError
from policybridge_serdes import VARIES, ElementType, Layout, TensorSpec, Values, join, pack, tensor, unpack, zeros
from policybridge_serdes.values import fit

from .strategies import bits_of, fixed_layouts, layouts, records, values_of

INT8 = TensorSpec("small", ElementType.INT8, (2,))
INT64 = TensorSpec("large", ElementType.INT64, (2,))
UINT64 = TensorSpec("unsigned", ElementType.UINT64, (2,))
FLOAT = TensorSpec("real", ElementType.FLOAT, (2,))
BOOL = TensorSpec("flag", ElementType.BOOL, (2,))
STRING = TensorSpec("text", ElementType.STRING, (2,))
BYTES = TensorSpec("raw", ElementType.BYTES, (2,))


@pytest.mark.parametrize(
    ("spec", "value", "held"),
    [
        (INT8, [-128, 127], [-128, 127]),
        (INT8, np.array([1, 2], ">i8"), [1, 2]),
        (INT8, np.arange(4)[::2], [0, 2]),
        (INT8, [True, False], [1, 0]),
        (INT64, np.array([1, 2**63 - 1], "u8"), [1, 2**63 - 1]),
        (UINT64, [0, 2**64 - 1], [0, 2**64 - 1]),
        (UINT64, (2**63, 1), [2**63, 1]),
        (FLOAT, [1, 2.5], [1, 2.5]),
        (FLOAT, [np.inf, -np.inf], [np.inf, -np.inf]),
        (FLOAT, np.array([1, 2], ">f8"), [1, 2]),
        (BOOL, [0, 1], [False, True]),
        (STRING, np.array(["a", "ž"]), ["a", "ž"]),
        (BYTES, [b"\0", b""], [b"\0", b""]),
        (BYTES, [b"ab", b"cd"], [b"ab", b"cd"]),
        (TensorSpec("scalar", ElementType.INT8, ()), 3, 3),
        (TensorSpec("one", ElementType.INT8, (1, 1)), 3, [[3]]),
        (TensorSpec("one", ElementType.STRING), "abc", ["abc"]),
        (TensorSpec("open", ElementType.INT8, (VARIES,)), [], []),
        (TensorSpec("open", ElementType.STRING, (VARIES,)), [], []),
        (TensorSpec("table", ElementType.STRING, (2, VARIES)), [["a", "b"], ["c", "d"]], [["a", "b"], ["c", "d"]]),
    ],
    ids=str,
)
def test_a_value_is_taken_as_its_spec_says(spec: TensorSpec, value: Any, held: object) -> None:
    array = fit(spec, value)
    assert array.tolist() == held
    assert array.dtype == spec.type.dtype


@pytest.mark.parametrize(
    ("spec", "value", "given"),
    [
        (INT8, [1, 128], "int64 values out of its range"),
        (INT8, [1, -129], "int64 values out of its range"),
        (INT64, np.array([1, 2**63], "u8"), "uint64 values out of its range"),
        (UINT64, [1, -1], "int64 values out of its range"),
        (UINT64, [1, 2**64], "object values"),
        (UINT64, [2**63, -1], "float64 values"),
        (BOOL, [1, 7], "int64 values out of its range"),
        (FLOAT, [1, 1e39], "float64 values out of its range"),
        (INT8, [1.0, 2.0], "float64 values"),
        (INT64, ["a", "b"], "<U1 values"),
        (INT64, [None, 1], "object values"),
        (INT64, [1, 1j], "complex128 values"),
        (INT64, [[1], [1, 2]], "no tensor"),
        (INT64, [1, 2, 3], "shape [3]"),
        (INT64, [[1, 2]], "shape [1, 2]"),
        (INT64, 1, "shape []"),
        (STRING, ["a", b"b"], "bytes elements"),
        (STRING, ["a", ["b"]], "list elements"),
        (STRING, ["a", "\udcff"], "str elements: '\\udcff'"),
        (STRING, [["a", "b"]], "shape [1, 2]"),
        (BYTES, ["a", "b"], "str elements"),
        (BYTES, [1, 2], "int elements"),
        (TensorSpec("open", ElementType.INT64, (VARIES, 2)), [[1], [2]], "shape [2, 1]"),
    ],
    ids=str,
)
def test_a_misfit_is_told_with_both_sides(spec: TensorSpec, value: Any, given: str) -> None:
    with pytest.raises(InvalidError, match=f"^{re.escape(str(spec))}.*{re.escape(given)}"):
        fit(spec, value)


def test_missing_tensors_are_named_beside_the_given_ones() -> None:
    with pytest.raises(InvalidError, match="no value for small, large; given are other"):
        pack(Layout.of([INT8, INT64]), {"other": 1})


def test_tensors_that_nobody_asked_for_are_ignored() -> None:
    assert unpack(Layout.of([INT8]), pack(Layout.of([INT8]), {"small": [1, 2], "other": 1})).keys() == {"small"}


@pytest.mark.parametrize("shape", [(2,), (VARIES,)], ids=str)
def test_a_packed_record_does_not_change_with_the_callers_buffer(shape: tuple[int, ...]) -> None:
    layout = Layout.of([TensorSpec("t", ElementType.INT64, shape)])
    buffer = np.array([1, 2])
    values = pack(layout, {"t": buffer})
    buffer[:] = 0
    assert unpack(layout, values)["t"].tolist() == [1, 2]


@given(records())
def test_unpacked_tensors_pack_to_the_same_bits(case: tuple[Layout, Values]) -> None:
    layout, values = case
    assert bits_of(layout, pack(layout, unpack(layout, values))) == bits_of(layout, values)


def test_unpacked_tensors_of_a_fixed_layout_are_views() -> None:
    layout = Layout.of([TensorSpec("scalar", ElementType.INT64, ()), TensorSpec("table", ElementType.FLOAT, (2, 2))])
    values = zeros(layout)
    assert all(np.shares_memory(array, values) for array in unpack(layout, values).values())


@given(st.data(), layouts())
def test_joined_records_are_the_rows_of_a_batch(data: st.DataObject, layout: Layout) -> None:
    rows = [data.draw(values_of(layout)) for _ in range(3)]
    batch = join(layout, rows)
    assert batch.shape == (3,)
    for index, row in enumerate(rows):
        assert bits_of(layout, batch[index : index + 1]) == bits_of(layout, row)


@given(st.data(), fixed_layouts())
def test_records_and_their_packed_bytes_join_alike(data: st.DataObject, layout: Layout) -> None:
    rows = [data.draw(values_of(layout)) for _ in range(2)]
    mixed = join(layout, [rows[0].tobytes(), rows[1]])
    assert mixed.tobytes() == join(layout, rows).tobytes()


def test_a_tensor_of_any_row_is_found() -> None:
    layout = Layout.of([TensorSpec("v", ElementType.INT8, (VARIES,)), TensorSpec("f", ElementType.INT8, ())])
    batch = join(layout, [pack(layout, {"v": [0] * row, "f": row}) for row in range(3)])
    assert [tensor(layout.by_name["v"], batch, row).shape for row in range(3)] == [(0,), (1,), (2,)]
    assert tensor(layout.by_name["f"], batch, 2) == 2
