"""Layouts and values of every kind, bit patterns that no arithmetic would make included."""

import math
from typing import Any

import hypothesis.strategies as st
import numpy as np
import numpy.typing as npt

from policybridge_serdes import VARIES, ElementType, Layout, TensorSpec, Values, tensor

NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
SHAPES = st.lists(st.integers(VARIES, 3), max_size=3).map(tuple)
FIXED_SHAPES = st.lists(st.integers(0, 3), max_size=3).map(tuple)
FIXED_TYPES = st.sampled_from([kind for kind in ElementType if not kind.is_text])
TEXTS = {
    ElementType.BYTES: st.binary(max_size=5),
    ElementType.STRING: st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
}


def layouts(shapes: Any = SHAPES, kinds: Any = None) -> st.SearchStrategy[Layout]:
    """Make layouts of up to four tensors."""
    specs = st.builds(TensorSpec, NAMES, kinds if kinds is not None else st.sampled_from(ElementType), shapes)
    return st.lists(specs, max_size=4, unique_by=lambda spec: spec.name).map(Layout.of)


def fixed_layouts() -> st.SearchStrategy[Layout]:
    """Make layouts whose records are packed."""
    return layouts(FIXED_SHAPES, FIXED_TYPES)


@st.composite
def arrays(draw: st.DrawFn, spec: TensorSpec) -> npt.NDArray[Any]:
    """Fill a tensor with random bits, or with random texts."""
    shape = tuple(draw(st.integers(0, 3)) if dim == VARIES else dim for dim in spec.shape)
    count = math.prod(shape)
    if spec.type.is_text:
        array = np.empty(count, object)
        array[:] = draw(st.lists(TEXTS[spec.type], min_size=count, max_size=count))
        return array.reshape(shape)
    size = count * spec.type.dtype.itemsize
    bits = np.frombuffer(draw(st.binary(min_size=size, max_size=size)), np.uint8)
    return (bits & 1 if spec.type is ElementType.BOOL else bits).view(spec.type.dtype).reshape(shape)


@st.composite
def values_of(draw: st.DrawFn, layout: Layout) -> Values:
    """Make one record of ``layout``."""
    return record(layout, *(draw(arrays(spec)) for spec in layout.specs))


@st.composite
def records(draw: st.DrawFn) -> tuple[Layout, Values]:
    """Make a layout and one record of it."""
    layout = draw(layouts())
    return layout, draw(values_of(layout))


def record(layout: Layout, *tensors: npt.NDArray[Any]) -> Values:
    """Put tensors into a record as they are, without the conversions of ``pack``."""
    values: Values = np.zeros(1, layout.dtype)
    for spec, array in zip(layout.specs, tensors, strict=True):
        values[spec.name][0] = array
    return values


def bits_of(layout: Layout, values: Values) -> list[object]:
    """Give what two records have in common exactly where they are the same bit for bit."""
    tensors = [tensor(spec, values) for spec in layout.specs]
    return [(array.shape, array.tolist() if array.dtype == object else array.tobytes()) for array in tensors]
