"""Matrices: Gemm and MatMul."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from policybridge_forms import Function, Opcode
from policybridge_server.forms.builder import Tensor
from policybridge_server.forms.operators.contract import Operation, Operator


def _gemm(op: Operation) -> Sequence[Tensor]:
    a, b = op.tensors[:2]
    turned = [bool(op.attributes.get(name)) for name in ("transA", "transB")]
    (rows, inner), (_, columns) = a.shape[:: -1 if turned[0] else 1], b.shape[:: -1 if turned[1] else 1]
    made = op.build.new(a.dtype, (rows, columns))
    left = (1, rows) if turned[0] else (inner, 1)
    right = (1, inner) if turned[1] else (columns, 1)
    op.build.emit(Opcode.MULTIPLY, made, [a, b], [rows, inner, columns, *left, *right])
    return [_with_bias(op, made)]


def _with_bias(op: Operation, product: Tensor) -> Tensor:
    """Give alpha * product + beta * C."""
    bias, build = op.optional(2), op.build
    alpha, beta = (float(op.attributes.get(name, 1.0)) for name in ("alpha", "beta"))
    scale, weight = (build.constant(each, product.dtype) for each in (alpha, beta))
    if alpha != 1:
        product = build.elementwise(Function.TIMES, [scale, product])
    if bias is None or beta == 0:
        return product
    added = bias if beta == 1 else build.elementwise(Function.TIMES, [weight, bias])
    return build.elementwise(Function.ADD, [product, added])


def _matmul(op: Operation) -> Sequence[Tensor]:
    a, b = op.tensors
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    outer = np.broadcast_shapes(left[:-2], right[:-2])
    rows, inner, columns = left[-2], left[-1], right[-1]
    shape = (*outer, *(left[-2:-1] if len(a.shape) > 1 else ()), *(right[-1:] if len(b.shape) > 1 else ()))
    build, made = op.build, op.build.new(a.dtype, shape)
    for number, (first, second) in enumerate(zip(_starts(left, outer), _starts(right, outer), strict=True)):
        operands = [build.operand(a, first * rows * inner), build.operand(b, second * inner * columns)]
        to = build.operand(made, number * rows * columns)
        build.emit(Opcode.MULTIPLY, to, operands, [rows, inner, columns, inner, 1, columns, 1])
    return [made]


def _starts(shape: tuple[int, ...], outer: tuple[int, ...]) -> list[int]:
    """Give the number of the matrix in a stack of ``shape`` for each of the stack ``outer``."""
    own = np.arange(math.prod(shape[:-2])).reshape(shape[:-2])
    return [int(each) for each in np.broadcast_to(own, outer).reshape(-1)]


OPERATORS: Final[dict[str, Operator]] = {"Gemm": _gemm, "MatMul": _matmul}
