"""The functions of MAP as expressions in C (docs/forms.md)."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from policybridge_forms import Function, Instruction
from policybridge_train.embedding.body import Body
from policybridge_train.embedding.text import c_type

_Write = Callable[..., str]
"""Takes the body, the instruction and the expression of one element of each input."""


def element(body: Body, each: Instruction, *reads: str) -> str:
    """Write one element of a MAP."""
    return _FUNCTIONS[each.function](body, each, *reads)


def wrapped(dtype: np.dtype[Any], sign: str, x: str, y: str) -> str:
    """Compute with integers so that an overflow wraps; in C only unsigned ones do."""
    return f"({c_type(dtype)})((uint64_t){x} {sign} (uint64_t){y})"


def _rounded(each: Instruction, text: str) -> str:
    dtype = each.output.dtype
    return f"({c_type(dtype)})({text})" if dtype.itemsize < 8 else text


def _cast(body: Body, each: Instruction, x: str) -> str:
    given, wanted = each.inputs[0].dtype, each.output.dtype
    if wanted.kind == "b":
        return f"{x} != 0"
    if given.kind == "f" and wanted.kind in "iu":
        return f"({c_type(wanted)}){body.call(_to_integer(wanted))}({x})"
    return x if given == wanted else f"({c_type(wanted)}){x}"


def _to_integer(wanted: np.dtype[Any]) -> str:
    if wanted == np.uint64:
        return "to_uint64"
    return "to_int32" if wanted.itemsize < 4 or wanted == np.int32 else "to_int64"


def _negative(_: Body, each: Instruction, x: str) -> str:
    dtype = each.output.dtype
    return f"-{x}" if dtype.kind == "f" else wrapped(dtype, "-", "0", x)


def _absolute(body: Body, each: Instruction, x: str) -> str:
    return f"{x} < 0 ? {_negative(body, each, x)} : {x}" if each.output.dtype.kind in "fi" else x


def _sign(_: Body, each: Instruction, x: str) -> str:
    dtype = each.output.dtype
    if dtype.kind not in "fi":
        return f"({c_type(dtype)})({x} > 0)"
    return f"{f'{x} != {x} ? {x} : ' if dtype.kind == 'f' else ''}({c_type(dtype)})(({x} > 0) - ({x} < 0))"


def _by(helper: str) -> _Write:
    return lambda body, each, x: _rounded(each, f"{body.call(helper)}({x})")


def _softplus(body: Body, each: Instruction, x: str) -> str:
    log, exp = body.call("log"), body.call("exp")
    return _rounded(each, f"({x} > 0 ? {x} : 0) + {log}(1.0 + {exp}({x} > 0 ? -{x} : {x}))")


def _gelu(body: Body, each: Instruction, x: str) -> str:
    return _rounded(each, f"0.5 * {x} * (1.0 + {body.call('erf')}({x} * 0.7071067811865476))")


def _gelu_tanh(body: Body, each: Instruction, x: str) -> str:
    inner = f"{body.call('tanh')}(0.7978845608028654 * ({x} + 0.044715 * {x} * {x} * {x}))"
    return _rounded(each, f"0.5 * {x} * (1.0 + {inner})")


def _elu(body: Body, each: Instruction, x: str) -> str:
    below = _rounded(each, f"{each.numbers[0]!r} * ({body.call('exp')}({x}) - 1.0)")
    return f"{x} < 0 ? {below} : {x}"


def _celu(body: Body, each: Instruction, x: str) -> str:
    alpha, exp = repr(each.numbers[0]), body.call("exp")
    below = _rounded(each, f"{alpha} * ({exp}({x} / {alpha}) - 1.0)")
    return f"{x} > 0 ? {x} : {below}"


def _selu(body: Body, each: Instruction, x: str) -> str:
    alpha, gamma = map(repr, each.numbers)
    return _rounded(each, f"{gamma} * ({x} > 0 ? {x} : {alpha} * ({body.call('exp')}({x}) - 1.0))")


def _binary(sign: str) -> _Write:
    def write(_: Body, each: Instruction, x: str, y: str) -> str:
        dtype = each.output.dtype
        return f"{x} {sign} {y}" if dtype.kind == "f" else wrapped(dtype, sign, x, y)

    return write


def _power(body: Body, each: Instruction, x: str, y: str) -> str:
    return _rounded(each, f"{body.call('pow')}({x}, (double){y})")


def _extreme(sign: str) -> _Write:
    def write(_: Body, each: Instruction, x: str, y: str) -> str:
        or_nan = f" || {y} != {y}" if each.output.dtype.kind == "f" else ""
        return f"{y} {sign} {x}{or_nan} ? {y} : {x}"

    return write


def _plainly(text: str) -> _Write:
    """Write a template, in which the inputs are A, B and C."""
    return lambda _body, _each, *reads: "".join(dict(zip("ABC", reads, strict=False)).get(one, one) for one in text)


def _batch_norm(body: Body, each: Instruction, x: str, scale: str, bias: str, mean: str, spread: str) -> str:  # noqa: PLR0913, PLR0917
    root = f"{body.call('sqrt')}((double){spread} + {each.numbers[0]!r})"
    return f"({c_type(each.output.dtype)})((double)({x} - {mean}) / {root} * {scale} + {bias})"


_FUNCTIONS: Final[Mapping[Function, _Write]] = MappingProxyType(
    {
        Function.CAST: _cast,
        Function.NEGATIVE: _negative,
        Function.ABSOLUTE: _absolute,
        Function.SIGN: _sign,
        Function.NOT: _plainly("A == 0"),
        Function.IS_NAN: _plainly("A != A"),
        Function.FLOOR: _by("floor"),
        Function.CEIL: _by("ceil"),
        Function.ROUND: _by("round"),
        Function.SQRT: _by("sqrt"),
        Function.EXP: _by("exp"),
        Function.LOG: _by("log"),
        Function.ERF: _by("erf"),
        Function.TANH: _by("tanh"),
        Function.SIGMOID: _by("sigmoid"),
        Function.SOFTPLUS: _softplus,
        Function.GELU: _gelu,
        Function.GELU_TANH: _gelu_tanh,
        Function.ELU: _elu,
        Function.CELU: _celu,
        Function.SELU: _selu,
        Function.ADD: _binary("+"),
        Function.SUBTRACT: _binary("-"),
        Function.TIMES: _binary("*"),
        Function.DIVIDE: _plainly("A / B"),
        Function.POWER: _power,
        Function.GREATEST: _extreme(">"),
        Function.LEAST: _extreme("<"),
        Function.AT_LEAST: _plainly("A < B ? B : A"),
        Function.AT_MOST: _plainly("A > B ? B : A"),
        Function.SLOPE: _plainly("A < 0 ? B * A : A"),
        Function.LESS: _plainly("A < B"),
        Function.LESS_EQUAL: _plainly("A <= B"),
        Function.GREATER: _plainly("A > B"),
        Function.GREATER_EQUAL: _plainly("A >= B"),
        Function.EQUAL: _plainly("A == B"),
        Function.AND: _plainly("(A != 0) && (B != 0)"),
        Function.OR: _plainly("(A != 0) || (B != 0)"),
        Function.XOR: _plainly("(A != 0) != (B != 0)"),
        Function.WHERE: _plainly("A ? B : C"),
        Function.BATCH_NORM: _batch_norm,
    }
)
