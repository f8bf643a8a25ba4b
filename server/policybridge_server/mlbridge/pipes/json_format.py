"""Format `json`: one object of features to us, ``{"out": advice}`` to the compiler."""

import json
import math
import re
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError
from policybridge_serdes import ElementType, Layout, TensorSpec, Values
from policybridge_server.mlbridge.pipes.formats import ParsedMessage
from policybridge_server.mlbridge.pipes.frames import frame

_Feature = bool | int | float | str | list[bool | int | float | str]

_FEATURES: Final = msgspec.json.Decoder(dict[str, _Feature])

_BARE: Final = re.compile(rb'"(?:[^"\\]++|\\.?)*+"?|-?\b(?:inf|nan)\b', re.DOTALL)
"""C's inf and nan, and whole strings, so that an inf within a string is not replaced and each byte is read once."""

_BARE_NAMES: Final = {b"inf": b"Infinity", b"-inf": b"-Infinity", b"nan": b"NaN", b"-nan": b"NaN"}

_KINDS: Final = {bool: ElementType.BOOL, int: ElementType.INT64, float: ElementType.DOUBLE, str: ElementType.STRING}


class JsonFormat:
    """LLVM's JSON. LLVM writes 4.0 as 4; `ObservationReader` decides which type such a feature has."""

    refusal = frame(b"no advice")
    """This is not JSON: the compiler's parser ends the process with status 1."""

    def __init__(self) -> None:
        self._key: tuple[tuple[str, ElementType, int], ...] = ()
        self._layout = Layout(())
        self._plain = False

    def read(self, message: bytes) -> ParsedMessage:
        """Read the object; a feature is a boolean, a number, a string, or a flat list of one of these."""
        features = {name: value if isinstance(value, list) else [value] for name, value in _parse(message).items()}
        key = tuple((name, _kind(name, value), len(value)) for name, value in features.items())
        if key != self._key:
            self._layout = Layout.of(TensorSpec(name, kind, (size,)) for name, kind, size in key)
            self._key = key
            # numpy makes such a record in one call, but not with texts or empty features.
            self._plain = all(size and not kind.is_text for _, kind, size in key)
        if self._plain:
            return ParsedMessage(self._layout, np.array([tuple(features.values())], self._layout.dtype))
        values: Values = np.empty(1, self._layout.dtype)
        for name, kind, size in key:
            if kind.is_text:
                values[name][0] = np.array(features[name], object)
            elif size:
                values[name][0] = features[name]
        return ParsedMessage(self._layout, values)

    def reply(self, spec: TensorSpec, advice: npt.NDArray[np.generic]) -> bytes:
        """Write the advice: a number, or a list of numbers if the shape of ``spec`` is not [1].

        The compiler reads all elements as integers if the first one looks like an integer, whatever type it expects. So
        the first element of an advice of floats is written with a fraction: the next double away from zero.
        """
        elements: list[Any] = advice.tolist()
        if not elements:
            raise InvalidError("an empty list crashes the compiler's JSON reader")
        if spec.type.dtype.kind == "f":
            texts = [_number(_fractional(elements[0])), *map(_number, elements[1:])]
        elif spec.type.dtype.kind == "u" and max(elements) >= 2**63:
            raise InvalidError(f"the compiler's JSON reader takes integers below 2⁶³, not {max(elements)}")
        else:
            texts = [msgspec.json.encode(element).decode() for element in elements]
        return f'{{"out": {texts[0] if spec.shape == (1,) else "[" + ", ".join(texts) + "]"}}}'.encode()


def _parse(message: bytes) -> dict[str, Any]:
    try:
        return _FEATURES.decode(message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if b"inf" not in message and b"nan" not in message:
            raise InvalidError(f"not a JSON object of features: {error}") from error
    # Python's own parser reads infinities and NaN, under other names.
    named = _BARE.sub(lambda match: _BARE_NAMES.get(match[0], match[0]), message)
    try:
        return msgspec.convert(json.loads(named), dict[str, _Feature])
    except (ValueError, RecursionError) as error:
        raise InvalidError(f"not a JSON object of features: {error}") from error


def _kind(name: str, elements: list[Any]) -> ElementType:
    """Give the narrowest type that holds all; of no elements, the widest."""
    types = {type(element) for element in elements}
    if types <= {int, float}:
        if types != {int}:
            return ElementType.DOUBLE
        return _integer(name, min(elements), max(elements))
    if len(types) > 1:
        raise InvalidError(f"{name}: a list holds booleans, numbers or strings, not {len(types)} kinds of them")
    return _KINDS[types.pop()]


def _integer(name: str, least: int, most: int) -> ElementType:
    for kind in (ElementType.INT64, ElementType.UINT64):
        limits = np.iinfo(kind.dtype)
        if limits.min <= least and most <= limits.max:
            return kind
    raise InvalidError(f"{name}: {least} to {most} does not fit in 64 bits")


def _fractional(number: float) -> float:
    if not math.isfinite(number) or not number.is_integer() or abs(number) > 2.0**63:
        return number
    # Away from zero, so that −0 keeps its sign. The compiler rounds to float, which removes the fraction.
    fractional = math.nextafter(number, math.copysign(math.inf, number))
    if fractional.is_integer():
        raise InvalidError(f"the compiler's JSON reader would take the float {number!r} for an integer")
    return fractional


def _number(number: float) -> str:
    if math.isnan(number):
        raise InvalidError("JSON has no NaN")
    if math.isinf(number):
        return "1e999" if number > 0 else "-1e999"  # a number that overflows is read as infinity
    # "-0" would be read as an integer, and integers have no −0.
    return f"{number:.17g}" if number or math.copysign(1, number) > 0 else "-0.0"
