"""Operators that move elements without computing new ones."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from policybridge_train.embedding.body import Tensor, index_of, strides_of
from policybridge_train.embedding.operators.contract import Operation, Operator


def _same(op: Operation) -> Sequence[Tensor]:
    if op.outputs > 1:
        raise op.refused("its mask is used")
    return op.tensors[:1]


def _viewed(x: Tensor, shape: Sequence[int]) -> list[Tensor]:
    wanted = tuple(int(dim) for dim in shape)
    return [replace(x, shape=wanted, value=None if x.value is None else x.value.reshape(wanted))]


def _reshape(op: Operation) -> Sequence[Tensor]:
    x, shape = op.tensors[0], [int(each) for each in op.constant(1, "shape")]
    if not op.attributes.get("allowzero"):
        shape = [x.shape[place] if dim == 0 else dim for place, dim in enumerate(shape)]
    return _viewed(x, np.empty(x.shape, np.bool_).reshape(shape).shape)


def _flatten(op: Operation) -> Sequence[Tensor]:
    (x,) = op.tensors
    axis = int(op.attributes.get("axis", 1))
    rows = int(np.prod(x.shape[:axis], dtype=np.int64))
    return _viewed(x, (rows, x.count // max(rows, 1)))


def _squeeze(op: Operation) -> Sequence[Tensor]:
    x, axes = op.tensors[0], op.constant(1, "axes")
    gone = [place for place, dim in enumerate(x.shape) if dim == 1] if axes is None else [int(each) for each in axes]
    kept = {place % len(x.shape) for place in gone}
    return _viewed(x, [dim for place, dim in enumerate(x.shape) if place not in kept])


def _unsqueeze(op: Operation) -> Sequence[Tensor]:
    x, axes = op.tensors[0], [int(each) for each in op.constant(1, "axes")]
    return _viewed(x, np.expand_dims(np.empty(x.shape, np.bool_), tuple(axes)).shape)


def _transpose(op: Operation) -> Sequence[Tensor]:
    (x,) = op.tensors
    order = list(op.attributes.get("perm", range(len(x.shape))[::-1]))
    return [_picked(op, x, np.arange(x.count).reshape(x.shape).transpose(order))]


def _slice(op: Operation) -> Sequence[Tensor]:
    x = op.tensors[0]
    starts, ends, axes, steps = (
        op.constant(place + 1, name) for place, name in enumerate(("starts", "ends", "axes", "steps"))
    )
    chosen = [slice(None)] * len(x.shape)
    along = range(len(starts)) if axes is None else axes
    for place, axis in enumerate(along):
        step = 1 if steps is None else int(steps[place])
        end = int(ends[place])
        # With a negative step, an end before the first element is None in a Python slice.
        last = None if step < 0 and end < -x.shape[int(axis)] else end
        chosen[int(axis)] = slice(int(starts[place]), last, step)
    return [_picked(op, x, np.arange(x.count).reshape(x.shape)[tuple(chosen)])]


def _split(op: Operation) -> Sequence[Tensor]:
    x, axis = op.tensors[0], int(op.attributes.get("axis", 0))
    sizes = op.constant(1, "split")
    places = np.arange(x.count).reshape(x.shape)
    if sizes is None:
        size = -(-x.shape[axis] // op.outputs)
        ends = [size * number for number in range(1, op.outputs)]
    else:
        ends = [int(each) for each in np.cumsum(sizes)[:-1]]
    return [_picked(op, x, each) for each in np.split(places, ends, axis)]


def _expand(op: Operation) -> Sequence[Tensor]:
    x, shape = op.tensors[0], tuple(int(each) for each in op.constant(1, "shape"))
    wanted = np.broadcast_shapes(x.shape, shape)
    return [_picked(op, x, np.broadcast_to(np.arange(x.count).reshape(x.shape), wanted))]


def _picked(op: Operation, x: Tensor, places: Any) -> Tensor:
    """Give the elements of ``x`` at the flat indices ``places``, in the shape of ``places``; a view if contiguous."""
    flat = places.reshape(-1)
    if len(flat) and np.array_equal(flat, np.arange(flat[0], flat[0] + len(flat))) and x.value is None:
        name = f"({x.name} + {int(flat[0])})" if flat[0] else x.name
        return Tensor(name, x.dtype, places.shape)
    table = op.body.constant(flat.astype(np.uint32))
    return replace(op.body.elementwise([table], x.dtype, lambda at: op.body.read(x, at)), shape=places.shape)


def _concat(op: Operation) -> Sequence[Tensor]:
    tensors = [each for each in op.tensors if each.count]
    axis = int(op.attributes["axis"]) % len(op.tensors[0].shape)
    shape = list(op.tensors[0].shape)
    shape[axis] = sum(each.shape[axis] for each in op.tensors)
    made, begun = op.body.new(op.tensors[0].dtype, shape), 0
    inner = strides_of(shape)[axis]
    outer = int(np.prod(shape[:axis], dtype=np.int64))
    for each in tensors:
        size = each.shape[axis] * inner
        with op.body.loop("o", outer), op.body.loop("i", size):
            into = index_of({0: "o", 1: "i"}, [shape[axis] * inner, 1])
            read = op.body.read(each, index_of({0: "o", 1: "i"}, [size, 1]))
            op.body.line(f"{made.name}[{into} + {begun}] = {read};")
        begun += size
    return [made]


def _gather(op: Operation) -> Sequence[Tensor]:
    """Pick slices by index, such as the rows of an embedding. An index out of range is an error, as in ONNX Runtime."""
    data, indices = op.tensors
    axis = int(op.attributes.get("axis", 0)) % len(data.shape)
    if indices.value is not None:
        if any(not -data.shape[axis] <= index < data.shape[axis] for index in indices.value.reshape(-1).tolist()):
            raise op.refused(f"its index is beyond its table of {data.shape[axis]}")
        places = np.take(np.arange(data.count).reshape(data.shape), indices.value, axis)
        return [_picked(op, data, places)]
    size = data.shape[axis]
    inner = strides_of(data.shape)[axis]
    outer = data.count // max(size * inner, 1)
    made = op.body.new(data.dtype, (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]))
    with op.body.loop("g", indices.count):
        op.body.line(f"int64_t at = (int64_t){op.body.read(indices, 'g')};")
        op.body.line(f"if (at < -{size} || at >= {size}) return {op.body.prefix.upper()}_BAD_INDEX;")
        op.body.line(f"if (at < 0) at += {size};")
        with op.body.loop("o", outer), op.body.loop("i", inner):
            into = f"(o * {indices.count} + g) * {inner} + i"
            op.body.line(f"{made.name}[{into}] = {op.body.read(data, f'(o * {size} + (size_t)at) * {inner} + i')};")
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
