"""Operators that compute each element by itself."""

from collections.abc import Callable, Sequence
from functools import partial, reduce
from typing import Any, Final

import numpy as np

from policybridge_train.embedding.body import Tensor
from policybridge_train.embedding.operators.contract import Operation, Operator
from policybridge_train.embedding.text import c_type, literal

_BOOL: Final = np.dtype(bool)


def rounded(dtype: np.dtype[Any], text: str) -> str:
    """Round a double to ``dtype``."""
    return f"({c_type(dtype)})({text})" if dtype.itemsize < 8 else text


def number_of(op: Operation, value: float) -> str:
    """Write a number in the type of the first input."""
    (x, *_) = op.tensors
    return literal(x.dtype.type(value), x.dtype)


def check_float(op: Operation) -> None:
    """Refuse inputs that are no floats.

    Raises:
        UnsupportedError: one is none.

    """
    for each in op.tensors:
        if each.dtype.kind != "f":
            raise op.refused(f"it takes {each.dtype}")


def unary(write: Callable[[Operation, str], str], op: Operation) -> Sequence[Tensor]:
    """Write an operator of one input, by the expression of an element."""
    (x, *_) = op.tensors
    return [op.body.elementwise([x], x.dtype, lambda read: write(op, read))]


def by_helper(helper: str, op: Operation) -> Sequence[Tensor]:
    """Write an operator that is a function of `arithmetic`."""
    check_float(op)
    (x,) = op.tensors
    function = op.body.call(helper)
    return [op.body.elementwise([x], x.dtype, lambda read: rounded(x.dtype, f"{function}({read})"))]


def _negative(op: Operation, x: str) -> str:
    (tensor,) = op.tensors
    return f"-{x}" if tensor.dtype.kind == "f" else _wrapped(tensor.dtype, "-", "0", x)


def _absolute(op: Operation, x: str) -> str:
    (tensor,) = op.tensors
    return f"{x} < 0 ? {_negative(op, x)} : {x}" if tensor.dtype.kind in "fi" else x


def _sign(op: Operation, x: str) -> str:
    (tensor,) = op.tensors
    c = c_type(tensor.dtype)
    if tensor.dtype.kind not in "fi":
        return f"({c})({x} > 0)"
    return f"{'' if tensor.dtype.kind == 'i' else f'{x} != {x} ? {x} : '}({c})(({x} > 0) - ({x} < 0))"


def _reciprocal(op: Operation, x: str) -> str:
    check_float(op)
    return f"{number_of(op, 1)} / {x}"


def _wrapped(dtype: np.dtype[Any], sign: str, x: str, y: str) -> str:
    """Compute with integers so that an overflow wraps, as in ONNX Runtime; in C only unsigned ones do."""
    return f"({c_type(dtype)})((uint64_t){x} {sign} (uint64_t){y})"


def _binary(sign: str, op: Operation) -> Sequence[Tensor]:
    x, y = op.tensors
    if x.dtype.kind == "f":
        return [op.body.elementwise([x, y], x.dtype, lambda a, b: f"{a} {sign} {b}")]
    return [op.body.elementwise([x, y], x.dtype, lambda a, b: _wrapped(x.dtype, sign, a, b))]


def _divided(op: Operation) -> Sequence[Tensor]:
    check_float(op)
    return _binary("/", op)


def _power(op: Operation) -> Sequence[Tensor]:
    x, y = op.tensors
    if x.dtype.kind != "f":
        raise op.refused(f"it takes {x.dtype}")
    pow_ = op.body.call("pow")
    return [op.body.elementwise([x, y], x.dtype, lambda a, b: rounded(x.dtype, f"{pow_}({a}, (double){b})"))]


def _folded(write: Callable[[str, str], str], op: Operation) -> Sequence[Tensor]:
    """Write an operator of any number of inputs from the left."""
    body = op.body

    def both(left: Tensor, right: Tensor) -> Tensor:
        return body.elementwise([left, right], left.dtype, write)

    return [reduce(both, op.tensors)]


def _extreme(sign: str, op: Operation) -> Sequence[Tensor]:
    """Write Max or Min: NaN where one of the inputs is NaN."""
    if op.tensors[0].dtype.kind != "f":
        return _folded(lambda a, b: f"{b} {sign} {a} ? {b} : {a}", op)
    return _folded(lambda a, b: f"{b} {sign} {a} || {b} != {b} ? {b} : {a}", op)


def _sum(op: Operation) -> Sequence[Tensor]:
    check_float(op)
    return _folded(lambda a, b: f"{a} + {b}", op)


def _mean(op: Operation) -> Sequence[Tensor]:
    (total,) = _sum(op)
    count = literal(total.dtype.type(len(op.tensors)), total.dtype)
    return [op.body.elementwise([total], total.dtype, lambda a: f"{a} / {count}")]


def _compared(sign: str, op: Operation) -> Sequence[Tensor]:
    return [op.body.elementwise(op.tensors, _BOOL, lambda a, b: f"{a} {sign} {b}")]


def _not(op: Operation) -> Sequence[Tensor]:
    return [op.body.elementwise(op.tensors, _BOOL, lambda a: f"!{a}")]


def _logical(sign: str, op: Operation) -> Sequence[Tensor]:
    return [op.body.elementwise(op.tensors, _BOOL, lambda a, b: f"({a} != 0) {sign} ({b} != 0)")]


def _where(op: Operation) -> Sequence[Tensor]:
    _, x, _ = op.tensors
    return [op.body.elementwise(op.tensors, x.dtype, lambda c, a, b: f"{c} ? {a} : {b}")]


def _is_nan(op: Operation) -> Sequence[Tensor]:
    return [op.body.elementwise(op.tensors, _BOOL, lambda a: f"{a} != {a}")]


def _clip(op: Operation) -> Sequence[Tensor]:
    x = op.tensors[0]
    made = x
    for place, name, sign in ((1, "min", "<"), (2, "max", ">")):
        bound = op.constant(place, name)
        if bound is not None and _binds(name, np.asarray(bound).reshape(-1)[0], x.dtype):
            text = literal(np.asarray(bound).reshape(-1)[0], x.dtype)
            made = op.body.elementwise([made], x.dtype, partial(_bounded, sign, text))
    return [made]


def _binds(name: str, bound: Any, dtype: np.dtype[Any]) -> bool:
    """Whether a number of the type can be beyond the bound: compilers warn of a comparison that is always false."""
    return dtype.kind == "f" or int(bound) != getattr(np.iinfo(dtype), name)


def _bounded(sign: str, bound: str, x: str) -> str:
    return f"{x} {sign} {bound} ? {bound} : {x}"


def _cast(op: Operation) -> Sequence[Tensor]:
    import onnx  # noqa: PLC0415 - only who embeds has it

    (x,) = op.tensors
    try:
        wanted = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(op.attributes["to"]))
        c_type(wanted)
    except KeyError:
        raise op.refused(f"it casts to the type number {op.attributes['to']}") from None
    return [convert(op, x, wanted)]


def to_integer(wanted: np.dtype[Any]) -> str:
    """Give the helper that makes an integer of a double."""
    if wanted == np.uint64:
        return "to_uint64"
    return "to_int32" if wanted.itemsize < 4 or wanted == np.int32 else "to_int64"


def convert(op: Operation, x: Tensor, wanted: np.dtype[Any]) -> Tensor:
    """Convert as ONNX Runtime does on x86-64; numbers out of range are where C leaves it undefined."""
    if x.dtype == wanted:
        return x
    c = c_type(wanted)
    if wanted.kind == "b":
        return op.body.elementwise([x], wanted, lambda a: f"{a} != 0")
    if x.dtype.kind == "f" and wanted.kind in "iu":
        helper = op.body.call(to_integer(wanted))
        return op.body.elementwise([x], wanted, lambda a: f"({c}){helper}({a})")
    return op.body.elementwise([x], wanted, lambda a: f"({c}){a}")


OPERATORS: Final[dict[str, Operator]] = {
    "Abs": partial(unary, _absolute),
    "Add": partial(_binary, "+"),
    "And": partial(_logical, "&&"),
    "Cast": _cast,
    "Ceil": partial(by_helper, "ceil"),
    "Clip": _clip,
    "Div": _divided,
    "Equal": partial(_compared, "=="),
    "Erf": partial(by_helper, "erf"),
    "Exp": partial(by_helper, "exp"),
    "Floor": partial(by_helper, "floor"),
    "Greater": partial(_compared, ">"),
    "GreaterOrEqual": partial(_compared, ">="),
    "IsNaN": _is_nan,
    "Less": partial(_compared, "<"),
    "LessOrEqual": partial(_compared, "<="),
    "Log": partial(by_helper, "log"),
    "Max": partial(_extreme, ">"),
    "Mean": _mean,
    "Min": partial(_extreme, "<"),
    "Mul": partial(_binary, "*"),
    "Neg": partial(unary, _negative),
    "Not": _not,
    "Or": partial(_logical, "||"),
    "Pow": _power,
    "Reciprocal": partial(unary, _reciprocal),
    "Round": partial(by_helper, "round"),
    "Sign": partial(unary, _sign),
    "Sqrt": partial(by_helper, "sqrt"),
    "Sub": partial(_binary, "-"),
    "Sum": _sum,
    "Where": _where,
    "Xor": partial(_logical, "!="),
}
