"""What networks put between their layers: operators of one number each, most of them not linear.

They are those of ONNX (onnx/docs/Operators.md).
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from policybridge_forms import Function
from policybridge_server.forms.builder import Tensor
from policybridge_server.forms.operators.contract import Operation, Operator
from policybridge_server.forms.operators.elementwise import check_float, function, number_of

_SELU: Final = {"alpha": 1.67326319217681884765625, "gamma": 1.05070102214813232421875}


def _relu(op: Operation) -> Sequence[Tensor]:
    (x,) = op.tensors
    return [op.build.elementwise(Function.AT_LEAST, [x, number_of(op, 0)])]


def _leaky(op: Operation) -> Sequence[Tensor]:
    check_float(op)
    (x,) = op.tensors
    return [op.build.elementwise(Function.SLOPE, [x, number_of(op, op.attributes.get("alpha", 0.01))])]


def _hard_sigmoid(op: Operation) -> Sequence[Tensor]:
    check_float(op)
    (x,), build = op.tensors, op.build
    alpha, beta = (number_of(op, op.attributes.get(name, value)) for name, value in (("alpha", 0.2), ("beta", 0.5)))
    line = build.elementwise(Function.ADD, [build.elementwise(Function.TIMES, [alpha, x]), beta])
    low = build.elementwise(Function.AT_LEAST, [line, number_of(op, 0)])
    return [build.elementwise(Function.AT_MOST, [low, number_of(op, 1)])]


def _softsign(op: Operation) -> Sequence[Tensor]:
    check_float(op)
    (x,), build = op.tensors, op.build
    size = build.elementwise(Function.ADD, [number_of(op, 1), build.elementwise(Function.ABSOLUTE, [x])])
    return [build.elementwise(Function.DIVIDE, [x, size])]


def _gelu(op: Operation) -> Sequence[Tensor]:
    check_float(op)
    by = Function.GELU_TANH if op.attributes.get("approximate", b"none") == b"tanh" else Function.GELU
    return [op.build.elementwise(by, op.tensors)]


def _with_alpha(by: Function, op: Operation) -> Sequence[Tensor]:
    check_float(op)
    return [op.build.elementwise(by, op.tensors, numbers=[op.attributes.get("alpha", 1.0)])]


def _selu(op: Operation) -> Sequence[Tensor]:
    check_float(op)
    numbers = [op.attributes.get(name, value) for name, value in _SELU.items()]
    return [op.build.elementwise(Function.SELU, op.tensors, numbers=numbers)]


def _prelu(op: Operation) -> Sequence[Tensor]:
    check_float(op)
    return [op.build.elementwise(Function.SLOPE, op.tensors)]


OPERATORS: Final[dict[str, Operator]] = {
    "Celu": partial(_with_alpha, Function.CELU),
    "Elu": partial(_with_alpha, Function.ELU),
    "Gelu": _gelu,
    "HardSigmoid": _hard_sigmoid,
    "LeakyRelu": _leaky,
    "PRelu": _prelu,
    "Relu": _relu,
    "Selu": _selu,
    "Sigmoid": partial(function, Function.SIGMOID),
    "Softplus": partial(function, Function.SOFTPLUS),
    "Softsign": _softsign,
    "Tanh": partial(function, Function.TANH),
}
