"""The functions of MAP in numpy, each with the operations of C in their order."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from policybridge_forms import arithmetic
from policybridge_forms.words import Function

Array = npt.NDArray[Any]
Computed = Callable[[Sequence[Array], np.dtype[Any], Sequence[float]], Array]
"""Takes the inputs, the type of the output and the numbers."""


def _where(test: Array, yes: Any, no: Any) -> Array:
    made: Array = np.where(test, yes, no)
    return made


def _is_nan(x: Array) -> Array:
    made: Array = np.isnan(x) if x.dtype.kind == "f" else np.zeros(x.shape, np.bool_)
    return made


def _cast(inputs: Sequence[Array], wanted: np.dtype[Any], _: Sequence[float]) -> Array:
    (x,) = inputs
    if wanted.kind == "b":
        return np.asarray(x != 0)
    if x.dtype.kind == "f" and wanted.kind in "iu":
        return arithmetic.to_integer(x.astype(np.float64), wanted)
    return x.astype(wanted)


def _sign(inputs: Sequence[Array], wanted: np.dtype[Any], _: Sequence[float]) -> Array:
    (x,) = inputs
    made = (x > 0).astype(wanted) - ((x < 0).astype(wanted) if wanted.kind in "fi" else wanted.type(0))
    return _where(_is_nan(x), x, made)


def _plainly(compute: Callable[..., Array]) -> Computed:
    return lambda inputs, _wanted, numbers: compute(*inputs, *numbers)


def _wide(compute: Callable[..., Array]) -> Computed:
    """Compute in double and round."""
    return lambda inputs, wanted, numbers: compute(*(each.astype(np.float64) for each in inputs), *numbers).astype(
        wanted
    )


def _power(inputs: Sequence[Array], wanted: np.dtype[Any], _: Sequence[float]) -> Array:
    x, y = np.broadcast_arrays(*(each.astype(np.float64) for each in inputs))
    return arithmetic.power(x, y).astype(wanted)


def _softplus(x: Array) -> Array:
    return _where(x > 0, x, 0.0) + arithmetic.log(1.0 + arithmetic.exp(_where(x > 0, -x, x)))


def _gelu(x: Array) -> Array:
    return 0.5 * x * (1.0 + arithmetic.erf(x * 0.7071067811865476))


def _gelu_tanh(inputs: Sequence[Array], wanted: np.dtype[Any], _: Sequence[float]) -> Array:
    x = inputs[0].astype(np.float64)
    inner = arithmetic.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x))
    return (0.5 * x * (1.0 + inner)).astype(wanted)


def _elu(inputs: Sequence[Array], wanted: np.dtype[Any], numbers: Sequence[float]) -> Array:
    (x,), (alpha,) = inputs, numbers
    return _where(x < 0, (alpha * (arithmetic.exp(x.astype(np.float64)) - 1.0)).astype(wanted), x)


def _celu(inputs: Sequence[Array], wanted: np.dtype[Any], numbers: Sequence[float]) -> Array:
    (x,), (alpha,) = inputs, numbers
    return _where(x > 0, x, (alpha * (arithmetic.exp(x.astype(np.float64) / alpha) - 1.0)).astype(wanted))


def _selu(x: Array, alpha: float, gamma: float) -> Array:
    return gamma * _where(x > 0, x, alpha * (arithmetic.exp(x) - 1.0))


def _batch_norm(inputs: Sequence[Array], wanted: np.dtype[Any], numbers: Sequence[float]) -> Array:
    (x, scale, bias, mean, spread), (epsilon,) = inputs, numbers
    root = arithmetic.sqrt(spread.astype(np.float64) + epsilon)
    return ((x - mean).astype(np.float64) / root * scale.astype(np.float64) + bias).astype(wanted)


FUNCTIONS: Final[Mapping[Function, Computed]] = MappingProxyType(
    {
        Function.CAST: _cast,
        Function.NEGATIVE: _plainly(lambda x: -x),
        Function.ABSOLUTE: _plainly(lambda x: _where(x < 0, -x, x)),
        Function.SIGN: _sign,
        Function.NOT: _plainly(lambda x: x == 0),
        Function.IS_NAN: _plainly(_is_nan),
        Function.FLOOR: _wide(arithmetic.floor),
        Function.CEIL: _wide(arithmetic.ceil),
        Function.ROUND: _wide(arithmetic.round_even),
        Function.SQRT: _wide(arithmetic.sqrt),
        Function.EXP: _wide(arithmetic.exp),
        Function.LOG: _wide(arithmetic.log),
        Function.ERF: _wide(arithmetic.erf),
        Function.TANH: _wide(arithmetic.tanh),
        Function.SIGMOID: _wide(arithmetic.sigmoid),
        Function.SOFTPLUS: _wide(_softplus),
        Function.GELU: _wide(_gelu),
        Function.GELU_TANH: _gelu_tanh,
        Function.ELU: _elu,
        Function.CELU: _celu,
        Function.SELU: _wide(_selu),
        Function.ADD: _plainly(lambda x, y: x + y),
        Function.SUBTRACT: _plainly(lambda x, y: x - y),
        Function.TIMES: _plainly(lambda x, y: x * y),
        Function.DIVIDE: _plainly(lambda x, y: x / y),
        Function.POWER: _power,
        Function.GREATEST: _plainly(lambda x, y: _where((y > x) | _is_nan(y), y, x)),
        Function.LEAST: _plainly(lambda x, y: _where((y < x) | _is_nan(y), y, x)),
        Function.AT_LEAST: _plainly(lambda x, y: _where(x < y, y, x)),
        Function.AT_MOST: _plainly(lambda x, y: _where(x > y, y, x)),
        Function.SLOPE: _plainly(lambda x, y: _where(x < 0, y * x, x)),
        Function.LESS: _plainly(lambda x, y: x < y),
        Function.LESS_EQUAL: _plainly(lambda x, y: x <= y),
        Function.GREATER: _plainly(lambda x, y: x > y),
        Function.GREATER_EQUAL: _plainly(lambda x, y: x >= y),
        Function.EQUAL: _plainly(lambda x, y: x == y),
        Function.AND: _plainly(lambda x, y: (x != 0) & (y != 0)),
        Function.OR: _plainly(lambda x, y: (x != 0) | (y != 0)),
        Function.XOR: _plainly(lambda x, y: (x != 0) != (y != 0)),
        Function.WHERE: _plainly(lambda c, x, y: _where(c != 0, x, y)),
        Function.BATCH_NORM: _batch_norm,
    }
)
