"""Operators that move elements without computing new ones."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from policybridge_forms import Opcode
from policybridge_server.forms.builder import Tensor
from policybridge_server.forms.operators.contract import Operation, Operator


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
    return [op.build.pick(x, np.arange(x.count).reshape(x.shape).transpose(order))]


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
    return [op.build.pick(x, np.arange(x.count).reshape(x.shape)[tuple(chosen)])]


def _split(op: Operation) -> Sequence[Tensor]:
    x, axis = op.tensors[0], int(op.attributes.get("axis", 0))
    sizes = op.constant(1, "split")
    places = np.arange(x.count).reshape(x.shape)
    if sizes is None:
        size = -(-x.shape[axis] // op.outputs)
        ends = [size * number for number in range(1, op.outputs)]
    else:
        ends = [int(each) for each in np.cumsum(sizes)[:-1]]
    return [op.build.pick(x, each) for each in np.split(places, ends, axis)]


def _expand(op: Operation) -> Sequence[Tensor]:
    x, shape = op.tensors[0], tuple(int(each) for each in op.constant(1, "shape"))
    wanted = np.broadcast_shapes(x.shape, shape)
    return [op.build.pick(x, np.broadcast_to(np.arange(x.count).reshape(x.shape), wanted))]


def _concat(op: Operation) -> Sequence[Tensor]:
    axis = int(op.attributes["axis"]) % len(op.tensors[0].shape)
    shape = list(op.tensors[0].shape)
    shape[axis] = sum(each.shape[axis] for each in op.tensors)
    made, begun = op.build.new(op.tensors[0].dtype, shape), 0
    inner = made.strides[axis]
    outer = int(np.prod(shape[:axis], dtype=np.int64))
    for each in op.tensors:
        size = each.shape[axis] * inner
        op.build.place(each, made, begun, [outer, size, shape[axis] * inner])
        begun += size
    return [made]


def _gather(op: Operation) -> Sequence[Tensor]:
    """Pick slices by index, such as the rows of an embedding. An index out of range is an error, as in ONNX Runtime."""
    data, indices = op.tensors
    axis = int(op.attributes.get("axis", 0)) % len(data.shape)
    size = data.shape[axis]
    if indices.value is not None:
        if any(not -size <= index < size for index in indices.value.reshape(-1).tolist()):
            raise op.refused(f"its index is beyond its table of {size}")
        places = np.take(np.arange(data.count).reshape(data.shape), indices.value, axis)
        return [op.build.pick(data, places)]
    inner = data.strides[axis]
    outer = data.count // max(size * inner, 1)
    made = op.build.new(data.dtype, (*data.shape[:axis], *indices.shape, *data.shape[axis + 1 :]))
    op.build.emit(Opcode.GATHER, made, [data, indices], [outer, size, inner, indices.count])
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
