"""What networks put between their layers: operators of one number each, most of them not linear.

The forms are those of ONNX (onnx/docs/Operators.md).
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from policybridge_train.embedding.body import Tensor
from policybridge_train.embedding.operators.contract import Operation, Operator
from policybridge_train.embedding.operators.elementwise import by_helper, check_float, number_of, rounded, unary

_SELU: Final = {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}


def _relu(op: Operation, x: str) -> str:
    zero = number_of(op, 0)
    return f"{x} < {zero} ? {zero} : {x}"


def _leaky(op: Operation, x: str) -> str:
    slope = number_of(op, op.attributes.get("alpha", 0.01))
    return f"{x} < {number_of(op, 0)} ? {slope} * {x} : {x}"


def _elu(op: Operation, x: str) -> str:
    check_float(op)
    alpha, exp = float(op.attributes.get("alpha", 1.0)), op.body.call("exp")
    below = rounded(op.tensors[0].dtype, f"{alpha!r} * ({exp}({x}) - 1.0)")
    return f"{x} < 0 ? {below} : {x}"


def _hard_sigmoid(op: Operation, x: str) -> str:
    check_float(op)
    alpha, beta = (number_of(op, op.attributes.get(name, value)) for name, value in (("alpha", 0.2), ("beta", 0.5)))
    line, zero, one = f"{alpha} * {x} + {beta}", number_of(op, 0), number_of(op, 1)
    return f"{line} < {zero} ? {zero} : {line} > {one} ? {one} : {line}"


def _softplus(op: Operation, x: str) -> str:
    check_float(op)
    log, exp, dtype = op.body.call("log"), op.body.call("exp"), op.tensors[0].dtype
    # By the absolute value, so that nothing overflows.
    return rounded(dtype, f"({x} > 0 ? {x} : 0) + {log}(1.0 + {exp}({x} > 0 ? -{x} : {x}))")


def _softsign(op: Operation, x: str) -> str:
    check_float(op)
    return f"{x} / ({number_of(op, 1)} + ({x} < 0 ? -{x} : {x}))"


def _gelu(op: Operation, x: str) -> str:
    check_float(op)
    if op.attributes.get("approximate", b"none") == b"tanh":
        inner = f"{op.body.call('tanh')}(0.7978845608028654 * ({x} + 0.044715 * {x} * {x} * {x}))"
    else:
        inner = f"{op.body.call('erf')}({x} * 0.7071067811865476)"
    return rounded(op.tensors[0].dtype, f"0.5 * {x} * (1.0 + {inner})")


def _selu(op: Operation, x: str) -> str:
    check_float(op)
    alpha, gamma = (float(op.attributes.get(name, value)) for name, value in _SELU.items())
    below = f"{alpha!r} * ({op.body.call('exp')}({x}) - 1.0)"
    return rounded(op.tensors[0].dtype, f"{gamma!r} * ({x} > 0 ? {x} : {below})")


def _celu(op: Operation, x: str) -> str:
    check_float(op)
    alpha = float(op.attributes.get("alpha", 1.0))
    below = rounded(op.tensors[0].dtype, f"{alpha!r} * ({op.body.call('exp')}({x} / {alpha!r}) - 1.0)")
    return f"{x} > 0 ? {x} : {below}"


def _prelu(op: Operation) -> Sequence[Tensor]:
    check_float(op)
    x, slope = op.tensors
    return [op.body.elementwise([x, slope], x.dtype, lambda a, b: f"{a} < 0 ? {b} * {a} : {a}")]


OPERATORS: Final[dict[str, Operator]] = {
    "Celu": partial(unary, _celu),
    "Elu": partial(unary, _elu),
    "Gelu": partial(unary, _gelu),
    "HardSigmoid": partial(unary, _hard_sigmoid),
    "LeakyRelu": partial(unary, _leaky),
    "PRelu": _prelu,
    "Relu": partial(unary, _relu),
    "Selu": partial(unary, _selu),
    "Sigmoid": partial(by_helper, "sigmoid"),
    "Softplus": partial(unary, _softplus),
    "Softsign": partial(unary, _softsign),
    "Tanh": partial(by_helper, "tanh"),
}
