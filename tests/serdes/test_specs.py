"""Specs and layouts: what may be agreed on, and how a disagreement is told."""

import re
from typing import Any

import msgspec
import numpy as np
import pytest

from policybridge_core.errors import InvalidError, TooLargeError
from policybridge_serdes import VARIES, ElementType, Layout, Signature, TensorSpec, zeros
from policybridge_serdes.specs import MAX_DIMENSIONS


def test_a_spec_reads_and_writes_llvms_json() -> None:
    fields = {"name": "sroa_savings", "type": "int64_t", "port": 0, "shape": [1]}
    spec = TensorSpec.from_json(fields)
    assert spec == TensorSpec("sroa_savings", ElementType.INT64, (1,))
    assert spec.to_json() == fields


@pytest.mark.parametrize("more", [{}, {"port": 3}, {"unknown": [[]]}], ids=str)
def test_a_spec_is_read_with_any_port_and_whatever_llvm_adds(more: dict[str, object]) -> None:
    assert TensorSpec.from_json({"name": "x", "type": "float", "shape": [], **more}) == TensorSpec(
        "x", ElementType.FLOAT, ()
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ([], "not a tensor's description"),
        ({"name": "x", "type": "float"}, "shape"),
        ({"name": "x", "type": "float", "shape": ["1"]}, "shape"),
        ({"name": "x", "type": "half", "shape": [1]}, "x: unknown element type 'half'; known are float, double"),
        ({"name": "", "type": "float", "shape": [1]}, "empty name"),
        ({"name": "\udcff", "type": "float", "shape": [1]}, "no Unicode text"),
        ({"name": "x", "type": "float", "shape": [1, -2]}, re.escape("x: float[1, -2]: a dimension is −1")),
        ({"name": "x", "type": "float", "shape": [1] * 40}, "x has 40 dimensions; at most 31"),
    ],
    ids=str,
)
def test_an_impossible_spec_is_refused_with_the_reason(fields: object, message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        TensorSpec.from_json(fields)


@pytest.mark.parametrize("shape", [[3], np.zeros(3).shape, (np.int64(3),), np.array([3])], ids=repr)
def test_a_shape_may_be_any_sequence_of_integers(shape: Any) -> None:
    spec = TensorSpec("x", ElementType.FLOAT, shape)
    assert (spec, hash(spec)) == (
        TensorSpec("x", ElementType.FLOAT, (3,)),
        hash(TensorSpec("x", ElementType.FLOAT, (3,))),
    )
    assert msgspec.json.encode(spec.to_json()) == b'{"name":"x","type":"float","port":0,"shape":[3]}'


@pytest.mark.parametrize("shape", [3, None, "3", (3.0,), (None,)], ids=repr)
def test_what_is_no_shape_is_refused_with_one(shape: Any) -> None:
    with pytest.raises(InvalidError, match=r"x has the shape .*; a shape has an integer for each dimension"):
        TensorSpec("x", ElementType.FLOAT, shape)


@pytest.mark.parametrize(
    "shape", [(2**29,), (0, 2**31), (VARIES, 2**40), (0, 2**20, 2**20), (10**4000, 10**4000)], ids=len
)
def test_a_spec_that_numpy_cannot_hold_is_too_large(shape: tuple[int, ...]) -> None:
    with pytest.raises(TooLargeError, match=r"x: float.* is too large"):
        TensorSpec("x", ElementType.FLOAT, shape)


@pytest.mark.parametrize("shape", [(2**29 - 1,), (0, 2**29 - 1), (1,) * MAX_DIMENSIONS, (0,) * MAX_DIMENSIONS], ids=len)
def test_the_largest_specs_make_a_record_type(shape: tuple[int, ...]) -> None:
    layout = Layout.of([TensorSpec("x", ElementType.FLOAT, shape)])
    assert np.empty(0, layout.dtype)["x"].shape == (0, *shape)


def test_tensors_that_are_too_large_together_are_refused() -> None:
    with pytest.raises(TooLargeError, match="the 2 tensors together"):
        Layout.of(TensorSpec(name, ElementType.INT8, (2**30,)) for name in "ab")


def test_two_tensors_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidError, match="two tensors are named 'x'"):
        Layout.of([TensorSpec("x", ElementType.INT8), TensorSpec("x", ElementType.FLOAT)])


def test_a_fixed_layout_is_packed_without_padding() -> None:
    layout = Layout.of([TensorSpec("a", ElementType.INT8), TensorSpec("b", ElementType.DOUBLE, (2, 2))])
    assert layout.fixed
    assert layout.size == layout.dtype.itemsize == 33


@pytest.mark.parametrize(
    "spec", [TensorSpec("v", ElementType.INT8, (VARIES,)), TensorSpec("s", ElementType.STRING, ())], ids=str
)
def test_a_tensor_that_varies_or_holds_strings_makes_its_layout_vary(spec: TensorSpec) -> None:
    layout = Layout.of([TensorSpec("a", ElementType.INT64), spec])
    assert not layout.fixed
    assert layout.size == 8
    assert layout.uniform is None


@pytest.mark.parametrize("kind", ElementType)
def test_one_record_of_zeros_exists_for_every_type(kind: ElementType) -> None:
    layout = Layout.of([TensorSpec("t", kind, (2,)), TensorSpec("v", kind, (VARIES, 3)), TensorSpec("s", kind, ())])
    assert zeros(layout).shape == (1,)


def test_the_type_of_all_tensors_is_known_where_they_share_one() -> None:
    assert Layout.of(TensorSpec(name, ElementType.INT64) for name in "ab").uniform == np.int64
    assert Layout.of([TensorSpec("a", ElementType.INT64), TensorSpec("b", ElementType.INT8)]).uniform is None
    assert Layout(()).uniform is None


def test_an_answers_layout_is_the_advice_alone() -> None:
    advice = TensorSpec("decision", ElementType.INT64)
    assert Signature.of([TensorSpec("x", ElementType.FLOAT)], advice).advice_layout == Layout.of([advice])


def test_text_in_the_place_of_a_type_or_of_a_spec_is_refused_with_what_would_be_right() -> None:
    with pytest.raises(
        InvalidError, match=r"x has the type 'int64_t', which is no ElementType; there are FLOAT \(float"
    ):
        TensorSpec("x", "int64_t")  # type: ignore[arg-type]
    with pytest.raises(InvalidError, match=r"such as TensorSpec\('x', ElementType.INT64\), not 'x'"):
        Signature.of(["x"], TensorSpec("y", ElementType.INT64))  # type: ignore[list-item]
