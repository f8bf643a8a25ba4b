"""The numbers of the format: element types, instructions, functions of elements. docs/forms.md describes each."""

from enum import IntEnum
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from policybridge_serdes import ElementType

MAGIC: Final = b"\x89PBF\r\n\x1a\n"
"""As in PNG: a transfer as text changes it."""
FORMAT: Final = 1

MOST_BYTES: Final = 1 << 25
"""Of a form."""
MOST_MEMORY: Final = 1 << 20
"""Bytes of an observation, and bytes of the tensors of one decision."""
MOST_INSTRUCTIONS: Final = 1 << 14
MOST_FEATURES: Final = 1 << 12
MOST_FORESTS: Final = 1 << 8
MOST_AXES: Final = 8
MOST_NAME: Final = 1 << 10
MOST_STEPS: Final = 1 << 22
"""Steps of one decision; see `policybridge_forms.checks`."""

TYPES: Final = (
    ElementType.BOOL,
    ElementType.INT8,
    ElementType.UINT8,
    ElementType.INT16,
    ElementType.UINT16,
    ElementType.INT32,
    ElementType.UINT32,
    ElementType.INT64,
    ElementType.UINT64,
    ElementType.FLOAT,
    ElementType.DOUBLE,
)
"""The element types in the order of their numbers."""

DTYPES: Final[tuple[np.dtype[Any], ...]] = tuple(each.dtype for each in TYPES)
NUMBERS: Final = MappingProxyType({dtype: number for number, dtype in enumerate(DTYPES)})


class Opcode(IntEnum):
    """What an instruction does."""

    MAP = 1
    PICK = 2
    GATHER = 3
    PLACE = 4
    MULTIPLY = 5
    REDUCE = 6
    ARGUMENT = 7
    SOFTMAX = 8
    NORMALISE = 9
    FOREST = 10


class Function(IntEnum):
    """What MAP computes of each element, and which reduction REDUCE, ARGUMENT and SOFTMAX take."""

    CAST = 1
    NEGATIVE = 2
    ABSOLUTE = 3
    SIGN = 4
    NOT = 5
    IS_NAN = 6
    FLOOR = 7
    CEIL = 8
    ROUND = 9
    SQRT = 10
    EXP = 11
    LOG = 12
    ERF = 13
    TANH = 14
    SIGMOID = 15
    SOFTPLUS = 16
    GELU = 17
    GELU_TANH = 18
    ELU = 19
    CELU = 20
    SELU = 21
    ADD = 32
    SUBTRACT = 33
    TIMES = 34
    DIVIDE = 35
    POWER = 36
    GREATEST = 37
    LEAST = 38
    AT_LEAST = 39
    AT_MOST = 40
    SLOPE = 41
    LESS = 48
    LESS_EQUAL = 49
    GREATER = 50
    GREATER_EQUAL = 51
    EQUAL = 52
    AND = 53
    OR = 54
    XOR = 55
    WHERE = 64
    BATCH_NORM = 65
    SUM = 80
    MEAN = 81
    MAXIMUM = 82
    MINIMUM = 83
    PLAIN = 96
    LOGARITHM = 97


class Aggregate(IntEnum):
    """How a forest joins the weights of its leaves."""

    SUM = 0
    AVERAGE = 1
    MIN = 2
    MAX = 3


REDUCTIONS: Final = (Function.SUM, Function.MEAN, Function.MAXIMUM, Function.MINIMUM)
OF_LIBM: Final = frozenset(
    {
        *(Function.SQRT, Function.EXP, Function.LOG, Function.TANH, Function.SIGMOID, Function.SOFTPLUS, Function.ELU),
        *(Function.CELU, Function.SELU, Function.GELU_TANH, Function.POWER, Function.BATCH_NORM),
    }
)
BY_SERIES: Final = frozenset({Function.ERF, Function.GELU})
