"""A form of every opcode and every function, on numbers of every kind."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from policybridge_forms import Aggregate, Feature, Forest, Function, Head, Opcode, Space
from policybridge_forms.checks import FUNCTIONS
from policybridge_forms.content import Content
from policybridge_forms.words import DTYPES, TYPES
from policybridge_serdes import TensorSpec
from policybridge_server.forms.builder import Builder, Tensor
from tests.forms.parts import TREES

WIDTH: Final = 6
_BOOL: Final = np.dtype(bool)
_NUMBERS: Final = (1.5, 0.75)
_ODD: Final = (0.0, -0.0, 0.5, 1.5, -2.5, 2, 3, np.inf, -np.inf, np.nan, 1e-310, 700, 3e9, 1e19)


class _Every:
    def __init__(self) -> None:
        self.build = Builder()
        self.features: list[Feature] = []
        self.parts: list[Tensor] = []

    def feature(self, dtype: np.dtype[Any]) -> Tensor:
        """Add a feature of this type."""
        last = self.features[-1] if self.features else None
        end = last.offset + last.spec.size if last else 0
        spec = TensorSpec(f"x{len(self.features)}", TYPES[DTYPES.index(dtype)], (WIDTH,))
        self.features.append(Feature(spec, end + -end % 8))
        return Tensor(dtype, (WIDTH,), None, Space.OBSERVATION, end + -end % 8)

    def keep(self, tensor: Tensor) -> None:
        """Make the tensor a part of the result."""
        self.parts.append(self.build.elementwise(Function.CAST, [tensor], np.float64))

    def functions(self, features: dict[np.dtype[Any], tuple[Tensor, Tensor]]) -> None:
        """Add every function of every type that it takes."""
        bools = features[_BOOL]
        for function, (inputs, numbers, rule) in FUNCTIONS.items():
            for dtype, pair in features.items():
                if not _takes(rule, dtype):
                    continue
                given: Sequence[Tensor] = [*pair, *pair, *pair][:inputs]
                if function is Function.WHERE:
                    given = [bools[0], *pair]
                if function is Function.CAST:
                    for wanted in DTYPES:
                        self.keep(self.build.elementwise(function, given, wanted))
                    continue
                out = _BOOL if rule in ("tests", "float tests", "bools") else dtype
                self.keep(self.build.elementwise(function, given, out, _NUMBERS[:numbers]))

    def shapes(self, x: Tensor, index: Tensor) -> None:
        """Add what moves numbers, and what joins several."""
        build = self.build
        self.keep(build.pick(x, np.array([3, 0, 0, 5])))
        cube = Tensor(x.dtype, (2, 3), None, x.space, x.offset)
        column = build.constant(np.array([[0.5], [-2]]), x.dtype)
        self.keep(build.elementwise(Function.ADD, [cube, column]))
        at = build.elementwise(Function.AT_MOST, [index, build.constant(2, index.dtype)])
        at = build.elementwise(Function.AT_LEAST, [at, build.constant(-3, index.dtype)])
        rows = build.new(x.dtype, (2, WIDTH))
        build.emit(Opcode.GATHER, rows, [x, at], [2, 3, 1, WIDTH])
        self.keep(rows)
        product = build.new(x.dtype, (2, 2))
        build.emit(Opcode.MULTIPLY, product, [x, x], [2, 3, 2, 3, 1, 1, 3])
        self.keep(product)
        for opcode, function, dtype in (
            (Opcode.REDUCE, Function.SUM, x.dtype),
            (Opcode.REDUCE, Function.MEAN, x.dtype),
            (Opcode.REDUCE, Function.MAXIMUM, x.dtype),
            (Opcode.REDUCE, Function.MINIMUM, x.dtype),
            (Opcode.ARGUMENT, Function.MAXIMUM, np.int64),
            (Opcode.ARGUMENT, Function.MINIMUM, np.int64),
        ):
            made = build.new(dtype, (2,))
            build.emit(opcode, made, [x], [2, 3], function)
            self.keep(made)
        for function in (Function.PLAIN, Function.LOGARITHM):
            made = build.new(x.dtype, (2, 3))
            build.emit(Opcode.SOFTMAX, made, [x], [2, 3], function)
            self.keep(made)
        made = build.new(x.dtype, (2, 3))
        bias = build.constant([1, 2, 3], x.dtype)
        build.emit(Opcode.NORMALISE, made, [x, build.constant(2, x.dtype), bias], [2, 3, 0, 1], numbers=[1e-5])
        self.keep(made)
        for aggregate in Aggregate:
            self.keep(build.forest(_several(aggregate, x.dtype), x))

    def content(self) -> Content:
        """Give the form of all."""
        count = sum(part.count for part in self.parts)
        whole, begun = self.build.new(np.float64, (count,)), 0
        for part in self.parts:
            self.build.place(part, whole, begun, [1, part.count, part.count])
            begun += part.count
        last = self.features[-1]
        return Content(
            bytes(32),
            self.features,
            last.offset + last.spec.size + -last.spec.size % 8,
            self.build.work,
            self.build.constants,
            self.build.forests,
            self.build.instructions,
            self.build.operand(whole),
            TensorSpec("all", TYPES[-1], (count,)),
            Head(),
        )


def _takes(rule: str, dtype: np.dtype[Any]) -> bool:
    return {
        "any": True,
        "number": dtype.kind != "b",
        "float": dtype.kind == "f",
        "power": dtype.kind == "f",
        "tests": True,
        "float tests": dtype.kind == "f",
        "bools": dtype.kind == "b",
        "where": True,
    }[rule]


def _several(aggregate: Aggregate, dtype: np.dtype[Any]) -> Forest:
    """Give trees of three targets: a leaf has weights of some."""
    kinds = np.array([1, 3, 1, 0, 0, 0, 0, 0], np.uint8)
    links = np.array([0, 1, 5, 1, 0, 2, 3, 1], np.uint32)
    thresholds = np.array([0.5, -1, np.inf, 0, 0, 0, 0, 0], dtype)
    owners = np.array([0, 1, 2, 0, 2, 1, 2], np.uint32)
    weights = np.array([1.5, -0.0, 3, 0.1, -7, 0.25, 1e30], dtype)
    return Forest(dtype, WIDTH, 3, aggregate, np.array([7, 1], np.uint32), kinds, links, thresholds, owners, weights)


def every() -> Content:
    """Give a form of every opcode and every function."""
    made = _Every()
    made.functions({dtype: (made.feature(dtype), made.feature(dtype)) for dtype in DTYPES})
    index = made.feature(np.dtype("<i8"))
    for dtype in (np.dtype("<f4"), np.dtype("<f8")):
        made.shapes(made.feature(dtype), index)
    single = made.build.forest(TREES, made.feature(np.dtype("<f4")))
    made.keep(single)
    return made.content()


def numbers(content: Content, count: int, seed: int) -> np.ndarray:
    """Make observations of numbers of every size, with the ends of their types, zeros of both signs, and NaN."""
    random = np.random.default_rng(seed)
    made = np.zeros(count, content.record)
    for each in content.features:
        dtype, shape = each.spec.type.dtype, made[each.spec.name].shape
        if dtype.kind == "b":
            made[each.spec.name] = random.integers(0, 2, shape)
        elif dtype.kind == "f":
            plain = random.normal(size=shape) * 10.0 ** random.integers(-8, 5, shape)
            odd = random.choice(
                [0.0, -0.0, 0.5, 1.5, -2.5, 2, 3, np.inf, -np.inf, np.nan, 1e-310, 700, 3e9, 1e19], shape
            )
            made[each.spec.name] = np.where(random.random(shape) < 0.25, odd, plain)
        else:
            ends = np.iinfo(dtype)
            whole = random.integers(ends.min, ends.max, shape, dtype, endpoint=True)
            small = random.integers(0, 5, shape).astype(dtype)
            made[each.spec.name] = np.where(random.random(shape) < 0.5, whole, small)
    return made
