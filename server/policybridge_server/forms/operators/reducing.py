"""Operators that reduce along axes, and those that normalise by such a reduction."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from policybridge_forms import Function, Opcode
from policybridge_server.forms.builder import Tensor
from policybridge_server.forms.operators.contract import Operation, Operator
from policybridge_server.forms.operators.elementwise import check_float


def _axes(op: Operation, rank: int) -> list[int]:
    axes = op.constant(1, "axes")
    if axes is None or not len(axes):
        return [] if axes is not None and op.attributes.get("noop_with_empty_axes") else list(range(rank))
    return sorted({int(each) % rank for each in axes})


def _grouped(op: Operation, x: Tensor, axes: Sequence[int]) -> tuple[Tensor, int, int]:
    """Give ``x`` with the reduced axes last, how many groups there are, and the size of each."""
    kept = [axis for axis in range(len(x.shape)) if axis not in axes]
    size = math.prod(x.shape[axis] for axis in axes)
    if not size:
        raise op.refused("an axis that it reduces is empty")
    order = [*kept, *axes]
    moved = [axis for axis in order if x.shape[axis] != 1]
    if moved != sorted(moved):
        x = op.build.pick(x, np.arange(x.count).reshape(x.shape).transpose(order).reshape(-1))
    return x, x.count // size, size


def _reduced_shape(op: Operation, x: Tensor, axes: Sequence[int]) -> list[int]:
    if op.attributes.get("keepdims", 1):
        return [1 if axis in axes else dim for axis, dim in enumerate(x.shape)]
    return [dim for axis, dim in enumerate(x.shape) if axis not in axes]


def _reduced(by: Function, op: Operation) -> Sequence[Tensor]:
    x = op.tensors[0]
    axes = _axes(op, len(x.shape))
    if not axes:
        return [x]
    if x.dtype.kind != "f":
        raise op.refused(f"it takes {x.dtype}")
    grouped, count, size = _grouped(op, x, axes)
    made = op.build.new(x.dtype, _reduced_shape(op, x, axes))
    op.build.emit(Opcode.REDUCE, made, [grouped], [count, size], by)
    return [made]


def _argument(by: Function, op: Operation) -> Sequence[Tensor]:
    x = op.tensors[0]
    if op.attributes.get("select_last_index"):
        raise op.refused("select_last_index is set")
    axes = [int(op.attributes.get("axis", 0)) % len(x.shape)]
    grouped, count, size = _grouped(op, x, axes)
    made = op.build.new(np.int64, _reduced_shape(op, x, axes))
    op.build.emit(Opcode.ARGUMENT, made, [grouped], [count, size], by)
    return [made]


def softmax(op: Operation, x: Tensor, size: int, by: Function = Function.PLAIN) -> Tensor:
    """Give the softmax of each ``size`` numbers, or its logarithm."""
    check_float(op)
    made = op.build.new(x.dtype, x.shape)
    if made.count:
        op.build.emit(Opcode.SOFTMAX, made, [x], [x.count // size, size], by)
    return made


def _softmax(by: Function, op: Operation) -> Sequence[Tensor]:
    x = op.tensors[0]
    rank = len(x.shape)
    axis = int(op.attributes.get("axis", -1 if op.opset >= 13 else 1)) % max(rank, 1)
    # Before opset 13 all axes from this one on are one.
    axes = [axis] if op.opset >= 13 else list(range(axis, rank))
    if any(x.shape[after] != 1 for after in range(max(axes) + 1, rank)):
        raise op.refused("its axis is not the last")
    return [softmax(op, x, max(math.prod(x.shape[each] for each in axes), 1), by)]


def _layer_norm(op: Operation) -> Sequence[Tensor]:
    x, scale = op.tensors[:2]
    bias, build = op.optional(2), op.build
    if op.outputs > 1:
        raise op.refused("its mean or deviation is used")
    check_float(op)
    axis = int(op.attributes.get("axis", -1)) % len(x.shape)
    size = math.prod(x.shape[axis:])
    if not size:
        raise op.refused("an axis that it reduces is empty")
    made = build.new(x.dtype, x.shape)
    wide = [_spread(op, each, x.shape[axis:]) for each in (scale, *([bias] if bias is not None else []))]
    sizes = [x.count // size, size, *(int(each.count > 1) for each in wide)]
    build.emit(Opcode.NORMALISE, made, [x, *wide], sizes, numbers=[op.attributes.get("epsilon", 1e-5)])
    return [made]


def _spread(op: Operation, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    if x.count in (1, math.prod(shape)):
        return x
    return op.build.elementwise(Function.CAST, [x], shape=shape)


def _batch_norm(op: Operation) -> Sequence[Tensor]:
    x, *rest = op.tensors
    check_float(op)
    if op.outputs > 1 or len(x.shape) < 2:
        raise op.refused("it is trained, or has no channels")
    one = (x.shape[1], *[1] * (len(x.shape) - 2))
    spread = [replace(each, shape=one, value=None if each.value is None else each.value.reshape(one)) for each in rest]
    numbers = [op.attributes.get("epsilon", 1e-5)]
    return [op.build.elementwise(Function.BATCH_NORM, [x, *spread], numbers=numbers)]


OPERATORS: Final[dict[str, Operator]] = {
    "ArgMax": partial(_argument, Function.MAXIMUM),
    "ArgMin": partial(_argument, Function.MINIMUM),
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "LogSoftmax": partial(_softmax, Function.LOGARITHM),
    "ReduceMax": partial(_reduced, Function.MAXIMUM),
    "ReduceMean": partial(_reduced, Function.MEAN),
    "ReduceMin": partial(_reduced, Function.MINIMUM),
    "ReduceSum": partial(_reduced, Function.SUM),
    "Softmax": partial(_softmax, Function.PLAIN),
}
