"""Operators that move elements without computing new ones."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from policybridge_train.embedding.body import Tensor, index_of, strides_of
from policybridge_train.embedding.operators.contract import Call, Operator


def _same(call: Call) -> Sequence[Tensor]:
    if call.outputs > 1:
        raise call.refused("its mask is used")
    return call.tensors[:1]


def _viewed(x: Tensor, shape: Sequence[int]) -> list[Tensor]:
    wanted = tuple(int(dim) for dim in shape)
    return [replace(x, shape=wanted, value=None if x.value is None else x.value.reshape(wanted))]


def _reshape(call: Call) -> Sequence[Tensor]:
    x, shape = call.tensors[0], [int(each) for each in call.constant(1, "shape")]
    if not call.attributes.get("allowzero"):
        shape = [x.shape[place] if dim == 0 else dim for place, dim in enumerate(shape)]
    return _viewed(x, np.empty(x.shape, np.bool_).reshape(shape).shape)


def _flatten(call: Call) -> Sequence[Tensor]:
    (x,) = call.tensors
    axis = int(call.attributes.get("axis", 1))
    rows = int(np.prod(x.shape[:axis], dtype=np.int64))
    return _viewed(x, (rows, x.count // max(rows, 1)))


def _squeeze(call: Call) -> Sequence[Tensor]:
    x, axes = call.tensors[0], call.constant(1, "axes")
    gone = [place for place, dim in enumerate(x.shape) if dim == 1] if axes is None else [int(each) for each in axes]
    kept = {place % len(x.shape) for place in gone}
    return _viewed(x, [dim for place, dim in enumerate(x.shape) if place not in kept])


def _unsqueeze(call: Call) -> Sequence[Tensor]:
    x, axes = call.tensors[0], [int(each) for each in call.constant(1, "axes")]
    return _viewed(x, np.expand_dims(np.empty(x.shape, np.bool_), tuple(axes)).shape)


def _transpose(call: Call) -> Sequence[Tensor]:
    (x,) = call.tensors
    order = list(call.attributes.get("perm", range(len(x.shape))[::-1]))
    return [_picked(call, x, np.arange(x.count).reshape(x.shape).transpose(order))]


def _slice(call: Call) -> Sequence[Tensor]:
    x = call.tensors[0]
    starts, ends, axes, steps = (
        call.constant(place + 1, name) for place, name in enumerate(("starts", "ends", "axes", "steps"))
    )
    chosen = [slice(None)] * len(x.shape)
    along = range(len(starts)) if axes is None else axes
    for place, axis in enumerate(along):
        step = 1 if steps is None else int(steps[place])
        end = int(ends[place])
        # With a negative step, an end before the first element is None in a Python slice.
        last = None if step < 0 and end < -x.shape[int(axis)] else end
        chosen[int(axis)] = slice(int(starts[place]), last, step)
    return [_picked(call, x, np.arange(x.count).reshape(x.shape)[tuple(chosen)])]


def _split(call: Call) -> Sequence[Tensor]:
    x, axis = call.tensors[0], int(call.attributes.get("axis", 0))
    sizes = call.constant(1, "split")
    places = np.arange(x.count).reshape(x.shape)
    if sizes is None:
        size = -(-x.shape[axis] // call.outputs)
        ends = [size * number for number in range(1, call.outputs)]
    else:
        ends = [int(each) for each in np.cumsum(sizes)[:-1]]
    return [_picked(call, x, each) for each in np.split(places, ends, axis)]


def _expand(call: Call) -> Sequence[Tensor]:
    x, shape = call.tensors[0], tuple(int(each) for each in call.constant(1, "shape"))
    wanted = np.broadcast_shapes(x.shape, shape)
    return [_picked(call, x, np.broadcast_to(np.arange(x.count).reshape(x.shape), wanted))]


def _picked(call: Call, x: Tensor, places: Any) -> Tensor:
    """Give the elements of ``x`` at the flat indices ``places``, in the shape of ``places``; a view if contiguous."""
    flat = places.reshape(-1)
    if len(flat) and np.array_equal(flat, np.arange(flat[0], flat[0] + len(flat))) and x.value is None:
        name = f"({x.name} + {int(flat[0])})" if flat[0] else x.name
        return Tensor(name, x.dtype, places.shape)
    table = call.body.constant(flat.astype(np.uint32))
    return replace(call.body.elementwise([table], x.dtype, lambda at: call.body.read(x, at)), shape=places.shape)


def _concat(call: Call) -> Sequence[Tensor]:
    tensors = [each for each in call.tensors if each.count]
    axis = int(call.attributes["axis"]) % len(call.tensors[0].shape)
    shape = list(call.tensors[0].shape)
    shape[axis] = sum(each.shape[axis] for each in call.tensors)
    made, begun = call.body.new(call.tensors[0].dtype, shape), 0
    inner = strides_of(shape)[axis]
    outer = int(np.prod(shape[:axis], dtype=np.int64))
    for each in tensors:
        size = each.shape[axis] * inner
        with call.body.loop("o", outer), call.body.loop("i", size):
            into = index_of({0: "o", 1: "i"}, [shape[axis] * inner, 1])
            read = call.body.read(each, index_of({0: "o", 1: "i"}, [size, 1]))
            call.body.line(f"{made.name}[{into} + {begun}] = {read};")
        begun += size
    return [made]


def _gather(call: Call) -> Sequence[Tensor]:
    """Pick slices by index, such as the rows of an embedding. An index out of range is an error, as in ONNX Runtime."""
    data, indices = call.tensors
    axis = int(call.attributes.get("axis", 0)) % len(data.shape)
    if indices.value is not None:
        if any(not -data.shape[axis] <= index < data.shape[axis] for index in indices.value.reshape(-1).tolist()):
            raise call.refused(f"its index is beyond its table of {data.shape[axis]}")
        places = np.take(np.arange(data.count).reshape(data.shape), indices.value, axis)
        return [_picked(call, data, places)]
    size = data.shape[axis]
    inner = strides_of(data.shape)[axis]
    outer = data.count // max(size * inner, 1)
    made = call.body.new(data.dtype, (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]))
    with call.body.loop("g", indices.count):
        call.body.line(f"int64_t at = (int64_t){call.body.read(indices, 'g')};")
        call.body.line(f"if (at < -{size} || at >= {size}) return {call.body.prefix.upper()}_BAD_INDEX;")
        call.body.line(f"if (at < 0) at += {size};")
        with call.body.loop("o", outer), call.body.loop("i", inner):
            into = f"(o * {indices.count} + g) * {inner} + i"
            call.body.line(f"{made.name}[{into}] = {call.body.read(data, f'(o * {size} + (size_t)at) * {inner} + i')};")
    return [made]


OPERATORS: Final[dict[str, Operator]] = {
    "Concat": _concat,
    "Dropout": _same,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Identity": _same,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
