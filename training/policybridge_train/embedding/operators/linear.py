"""Matrices: Gemm and MatMul."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from policybridge_train.embedding.body import Body, Tensor
from policybridge_train.embedding.operators.contract import Operation, Operator
from policybridge_train.embedding.text import c_type, literal


def _gemm(op: Operation) -> Sequence[Tensor]:
    a, b = op.tensors[:2]
    left = a.shape[::-1] if op.attributes.get("transA") else a.shape
    right = b.shape[::-1] if op.attributes.get("transB") else b.shape
    (rows, inner), (_, columns) = left, right
    made = op.body.new(a.dtype, (rows, columns))
    first = _Matrix(a, *((1, rows) if op.attributes.get("transA") else (inner, 1)))
    second = _Matrix(b, *((1, inner) if op.attributes.get("transB") else (columns, 1)))
    _multiply(op.body, first, second, _Matrix(made, columns, 1), (rows, inner, columns))
    return [_with_bias(op, made)]


def _with_bias(op: Operation, product: Tensor) -> Tensor:
    """Give alpha * product + beta * C."""
    bias, dtype = op.optional(2), product.dtype
    alpha, beta = (float(op.attributes.get(name, 1.0)) for name in ("alpha", "beta"))
    scale, weight = (literal(dtype.type(each), dtype) for each in (alpha, beta))
    if alpha != 1:
        product = op.body.elementwise([product], dtype, lambda x: f"{scale} * {x}")
    if bias is None or beta == 0:
        return product
    return op.body.elementwise(
        [product, bias], dtype, lambda x, c: f"{x} + {c}" if beta == 1 else f"{x} + {weight} * {c}"
    )


@dataclass(frozen=True)
class _Matrix:
    """A matrix in an array: where it begins, and the steps from row to row and from column to column."""

    tensor: Tensor
    row: int
    column: int
    start: int = 0

    def read(self, body: Body, row: str, column: str) -> str:
        begin = f"{self.start} + " if self.start else ""
        return f"{body.array(self.tensor)}[{begin}{row} * {self.row} + {column} * {self.column}]"


def _multiply(body: Body, a: _Matrix, b: _Matrix, made: _Matrix, sizes: tuple[int, int, int]) -> None:
    """Write the product of two matrices: each element is a sum in the order of the inner dimension."""
    rows, inner, columns = sizes
    place = made.read(body, "r", "c")

    def added(to: str) -> str:
        x, y = a.read(body, "r", "k"), b.read(body, "k", "c")
        if made.tensor.dtype.kind == "f":
            return f"{to} += {x} * {y};"
        # Integers wrap, as in ONNX Runtime; in C only unsigned ones do.
        return f"{to} = ({c_type(made.tensor.dtype)})((uint64_t){to} + (uint64_t){x} * (uint64_t){y});"

    with body.loop("r", rows):
        # By rows of the second matrix where they lie in one piece: compilers make vectors of that.
        if b.column == 1 and columns > 1:
            with body.loop("c", columns):
                body.line(f"{place} = 0;")
            with body.loop("k", inner), body.loop("c", columns):
                body.line(added(place))
            return
        with body.loop("c", columns):
            body.line(f"{c_type(made.tensor.dtype)} sum = 0;")
            with body.loop("k", inner):
                body.line(added("sum"))
            body.line(f"{place} = sum;")


def _matmul(op: Operation) -> Sequence[Tensor]:
    a, b = op.tensors
    left = a.shape if len(a.shape) > 1 else (1, *a.shape)
    right = b.shape if len(b.shape) > 1 else (*b.shape, 1)
    outer = np.broadcast_shapes(left[:-2], right[:-2])
    rows, inner, columns = left[-2], left[-1], right[-1]
    shape = (*outer, *(left[-2:-1] if len(a.shape) > 1 else ()), *(right[-1:] if len(b.shape) > 1 else ()))
    made = op.body.new(a.dtype, shape)
    for number, (a_at, b_at) in enumerate(zip(_starts(left, outer), _starts(right, outer), strict=True)):
        first = _Matrix(a, inner, 1, a_at * rows * inner)
        second = _Matrix(b, columns, 1, b_at * inner * columns)
        product = _Matrix(made, columns, 1, number * rows * columns)
        _multiply(op.body, first, second, product, (rows, inner, columns))
    return [made]


def _starts(shape: tuple[int, ...], outer: tuple[int, ...]) -> list[int]:
    """Give the number of the matrix in a stack of ``shape`` for each of the stack ``outer``."""
    own = np.arange(math.prod(shape[:-2])).reshape(shape[:-2])
    return [int(each) for each in np.broadcast_to(own, outer).reshape(-1)]


OPERATORS: Final[dict[str, Operator]] = {"Gemm": _gemm, "MatMul": _matmul}
