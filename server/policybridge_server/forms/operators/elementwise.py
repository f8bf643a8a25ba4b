"""Operators that compute each element by itself."""

from collections.abc import Sequence
from functools import partial, reduce
from typing import Any, Final

import numpy as np

from policybridge_forms import Function
from policybridge_forms.words import NUMBERS
from policybridge_server.forms.builder import Tensor
from policybridge_server.forms.operators.contract import Operation, Operator

_BOOL: Final = np.dtype(bool)


def number_of(op: Operation, value: float) -> Tensor:
    """Give a number in the type of the first input."""
    (x, *_) = op.tensors
    return op.build.constant(value, x.dtype)


def check_float(op: Operation) -> None:
    """Refuse inputs that are no floats.

    Raises:
        UnsupportedError: one is none.

    """
    for each in op.tensors:
        if each.dtype.kind != "f":
            raise op.refused(f"it takes {each.dtype}")


def function(by: Function, op: Operation) -> Sequence[Tensor]:
    """Compute a function of floats."""
    check_float(op)
    return [op.build.elementwise(by, op.tensors)]


def _number(by: Function, op: Operation) -> Sequence[Tensor]:
    """Compute a function of numbers of any type."""
    return [op.build.elementwise(by, op.tensors)]


def _reciprocal(op: Operation) -> Sequence[Tensor]:
    check_float(op)
    return [op.build.elementwise(Function.DIVIDE, [number_of(op, 1), *op.tensors])]


def _power(op: Operation) -> Sequence[Tensor]:
    x, _ = op.tensors
    if x.dtype.kind != "f":
        raise op.refused(f"it takes {x.dtype}")
    return [op.build.elementwise(Function.POWER, op.tensors)]


def _folded(by: Function, op: Operation) -> Sequence[Tensor]:
    """Compute an operator of any number of inputs from the left."""
    return [reduce(lambda left, right: op.build.elementwise(by, [left, right]), op.tensors)]


def _sum(op: Operation) -> Sequence[Tensor]:
    check_float(op)
    return _folded(Function.ADD, op)


def _mean(op: Operation) -> Sequence[Tensor]:
    (total,) = _sum(op)
    return [op.build.elementwise(Function.DIVIDE, [total, number_of(op, len(op.tensors))])]


def _tested(by: Function, op: Operation) -> Sequence[Tensor]:
    return [op.build.elementwise(by, op.tensors, _BOOL)]


def _where(op: Operation) -> Sequence[Tensor]:
    return [op.build.elementwise(Function.WHERE, op.tensors, op.tensors[1].dtype)]


def _clip(op: Operation) -> Sequence[Tensor]:
    made = op.tensors[0]
    for place, name, by in ((1, "min", Function.AT_LEAST), (2, "max", Function.AT_MOST)):
        bound = op.constant(place, name)
        if bound is not None:
            made = op.build.elementwise(by, [made, op.build.constant(np.asarray(bound).reshape(-1)[0], made.dtype)])
    return [made]


def _cast(op: Operation) -> Sequence[Tensor]:
    import onnx  # noqa: PLC0415 - only who makes forms has it

    (x,) = op.tensors
    try:
        wanted = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(op.attributes["to"]))
    except KeyError:
        wanted = np.dtype(object)
    if wanted not in NUMBERS:
        raise op.refused(f"it casts to the type number {op.attributes['to']}")
    return [convert(op, x, wanted)]


def convert(op: Operation, x: Tensor, wanted: np.dtype[Any]) -> Tensor:
    """Convert as ONNX Runtime does on x86-64."""
    return x if x.dtype == wanted else op.build.elementwise(Function.CAST, [x], wanted)


OPERATORS: Final[dict[str, Operator]] = {
    "Abs": partial(_number, Function.ABSOLUTE),
    "Add": partial(_number, Function.ADD),
    "And": partial(_tested, Function.AND),
    "Cast": _cast,
    "Ceil": partial(function, Function.CEIL),
    "Clip": _clip,
    "Div": partial(function, Function.DIVIDE),
    "Equal": partial(_tested, Function.EQUAL),
    "Erf": partial(function, Function.ERF),
    "Exp": partial(function, Function.EXP),
    "Floor": partial(function, Function.FLOOR),
    "Greater": partial(_tested, Function.GREATER),
    "GreaterOrEqual": partial(_tested, Function.GREATER_EQUAL),
    "IsNaN": partial(_tested, Function.IS_NAN),
    "Less": partial(_tested, Function.LESS),
    "LessOrEqual": partial(_tested, Function.LESS_EQUAL),
    "Log": partial(function, Function.LOG),
    "Max": partial(_folded, Function.GREATEST),
    "Mean": _mean,
    "Min": partial(_folded, Function.LEAST),
    "Mul": partial(_number, Function.TIMES),
    "Neg": partial(_number, Function.NEGATIVE),
    "Not": partial(_tested, Function.NOT),
    "Or": partial(_tested, Function.OR),
    "Pow": _power,
    "Reciprocal": _reciprocal,
    "Round": partial(function, Function.ROUND),
    "Sign": partial(_number, Function.SIGN),
    "Sqrt": partial(function, Function.SQRT),
    "Sub": partial(_number, Function.SUBTRACT),
    "Sum": _sum,
    "Where": _where,
    "Xor": partial(_tested, Function.XOR),
}
