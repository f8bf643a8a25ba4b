"""Operators that reduce along axes, and those that normalise by such a reduction."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

import numpy as np

from policybridge_train.embedding.body import Tensor
from policybridge_train.embedding.operators.contract import Operation, Operator
from policybridge_train.embedding.text import c_type, literal


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
    if moved == sorted(moved):
        return x, x.count // max(size, 1), size
    places = np.arange(x.count).reshape(x.shape).transpose(order).reshape(-1)
    table = op.body.constant(places.astype(np.uint32))
    made = op.body.elementwise([table], x.dtype, lambda at: op.body.read(x, at))
    return made, x.count // max(size, 1), size


def _reduced_shape(op: Operation, x: Tensor, axes: Sequence[int]) -> list[int]:
    if op.attributes.get("keepdims", 1):
        return [1 if axis in axes else dim for axis, dim in enumerate(x.shape)]
    return [dim for axis, dim in enumerate(x.shape) if axis not in axes]


def _reduced(kind: str, op: Operation) -> Sequence[Tensor]:
    x = op.tensors[0]
    axes = _axes(op, len(x.shape))
    if not axes:
        return [x]
    if x.dtype.kind != "f":
        raise op.refused(f"it takes {x.dtype}")
    grouped, count, size = _grouped(op, x, axes)
    made, body = op.body.new(x.dtype, _reduced_shape(op, x, axes)), op.body
    with body.loop("o", count):
        read = body.read(grouped, f"o * {size} + i")
        begins = body.read(grouped, f"o * {size}") if kind in ("max", "min") else literal(x.dtype.type(0), x.dtype)
        body.line(f"{c_type(x.dtype)} all = {begins};")
        with body.loop("i", size):
            body.line(
                {
                    "sum": f"all += {read};",
                    "mean": f"all += {read};",
                    "max": f"if ({read} > all) all = {read};",
                    "min": f"if ({read} < all) all = {read};",
                }[kind]
            )
        body.line(f"{made.name}[o] = all{f' / {size}' if kind == 'mean' else ''};")
    return [made]


def _arg(sign: str, op: Operation) -> Sequence[Tensor]:
    x = op.tensors[0]
    if op.attributes.get("select_last_index"):
        raise op.refused("select_last_index is set")
    axes = [int(op.attributes.get("axis", 0)) % len(x.shape)]
    grouped, count, size = _grouped(op, x, axes)
    made, body = op.body.new(np.int64, _reduced_shape(op, x, axes)), op.body
    with body.loop("o", count):
        body.line("size_t best = 0;")
        with body.loop("i", size):
            one, other = (body.read(grouped, f"o * {size} + {each}") for each in ("i", "best"))
            body.line(f"if ({one} {sign} {other}) best = i;")
        body.line(f"{made.name}[o] = (int64_t)best;")
    return [made]


def _softmax(is_log: bool, op: Operation) -> Sequence[Tensor]:
    x, body = op.tensors[0], op.body
    rank = len(x.shape)
    axis = int(op.attributes.get("axis", -1 if op.opset >= 13 else 1)) % max(rank, 1)
    # Before opset 13 all axes from this one on are one.
    axes = [axis] if op.opset >= 13 else list(range(axis, rank))
    if any(x.shape[after] != 1 for after in range(max(axes) + 1, rank)):
        raise op.refused("its axis is not the last")
    size = math.prod(x.shape[each] for each in axes)
    made, c = body.new(x.dtype, x.shape), c_type(x.dtype)
    exp = body.call("exp")
    with body.loop("o", x.count // max(size, 1)):
        read = body.read(x, f"o * {size} + i")
        place = f"{made.name}[o * {size} + i]"
        body.line(f"{c} most = {body.read(x, f'o * {size}')};")
        body.line("double total = 0;")
        with body.loop("i", size):
            body.line(f"if ({read} > most) most = {read};")
        with body.loop("i", size):
            body.line(f"total += {exp}((double)({read} - most));")
        if is_log:
            body.line(f"total = {body.call('log')}(total);")
        with body.loop("i", size):
            value = f"(double)({read} - most) - total" if is_log else f"{exp}((double)({read} - most)) / total"
            body.line(f"{place} = ({c})({value});")
    return [made]


def _layer_norm(op: Operation) -> Sequence[Tensor]:
    x, scale = op.tensors[:2]
    bias = op.optional(2)
    if op.outputs > 1:
        raise op.refused("its mean or deviation is used")
    axis = int(op.attributes.get("axis", -1)) % len(x.shape)
    size, body, c = math.prod(x.shape[axis:]), op.body, c_type(x.dtype)
    made = body.new(x.dtype, x.shape)
    wide = [_spread(op, each, x.shape[axis:]) for each in (scale, *([bias] if bias is not None else []))]
    epsilon = float(op.attributes.get("epsilon", 1e-5))
    with body.loop("o", x.count // max(size, 1)):
        read = body.read(x, f"o * {size} + i")
        body.line("double mean = 0, spread = 0;")
        with body.loop("i", size):
            body.line(f"mean += {read};")
        body.line(f"mean /= {size}.0;")
        with body.loop("i", size):
            body.line(f"spread += ((double){read} - mean) * ((double){read} - mean);")
        body.line(f"spread = {body.call('sqrt')}(spread / {size}.0 + {epsilon!r});")
        with body.loop("i", size):
            added = f" + {body.read(wide[1], 'i')}" if bias is not None else ""
            normal = f"({c})(((double){read} - mean) / spread) * {body.read(wide[0], 'i')}{added}"
            body.line(f"{made.name}[o * {size} + i] = {normal};")
    return [made]


def _spread(op: Operation, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    if x.count in (1, math.prod(shape)):
        return x
    return op.body.elementwise([x], x.dtype, lambda a: a, shape)


def _batch_norm(op: Operation) -> Sequence[Tensor]:
    x, *rest = op.tensors
    if op.outputs > 1 or len(x.shape) < 2:
        raise op.refused("it is trained, or has no channels")
    one = (x.shape[1], *[1] * (len(x.shape) - 2))
    scale, bias, mean, spread = (
        replace(each, shape=one, value=None if each.value is None else each.value.reshape(one)) for each in rest
    )
    sqrt, c = op.body.call("sqrt"), c_type(x.dtype)
    epsilon = float(op.attributes.get("epsilon", 1e-5))
    return [
        op.body.elementwise(
            [x, scale, bias, mean, spread],
            x.dtype,
            lambda a, s, b, m, v: f"({c})((double)({a} - {m}) / {sqrt}((double){v} + {epsilon!r}) * {s} + {b})",
        )
    ]


OPERATORS: Final[dict[str, Operator]] = {
    "ArgMax": partial(_arg, ">"),
    "ArgMin": partial(_arg, "<"),
    "BatchNormalization": _batch_norm,
    "LayerNormalization": _layer_norm,
    "LogSoftmax": partial(_softmax, True),
    "ReduceMax": partial(_reduced, "max"),
    "ReduceMean": partial(_reduced, "mean"),
    "ReduceMin": partial(_reduced, "min"),
    "ReduceSum": partial(_reduced, "sum"),
    "Softmax": partial(_softmax, False),
}
