"""The bytes of a form: little-endian tables, each at a multiple of 8. docs/forms.md describes them byte by byte."""

from collections.abc import Callable, Iterable
from itertools import starmap
from struct import Struct
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError, TooLargeError
from policybridge_forms.content import Content, plain
from policybridge_forms.parts import Feature, Forest, Head, Instruction, Operand, Scores, Space
from policybridge_forms.words import (
    DTYPES,
    FORMAT,
    MAGIC,
    MOST_AXES,
    MOST_BYTES,
    MOST_FEATURES,
    MOST_FORESTS,
    MOST_INSTRUCTIONS,
    MOST_MEMORY,
    MOST_NAME,
    NUMBERS,
    TYPES,
    Aggregate,
    Function,
    Opcode,
)
from policybridge_serdes import TensorSpec

_HEADER: Final = Struct("<8sII32sIIIIIIIIII")
_OPERAND: Final = Struct("<BBHI")
_SPEC: Final = Struct("<HHHHII")
_INSTRUCTION: Final = Struct("<HHBBH")
_FOREST: Final = Struct("<IIIIIIII")
_LINE: Final = 8
_Word = TypeVar("_Word", Opcode, Function, Scores, Aggregate, Space)


def write(content: Content) -> bytes:
    """Write a form. The same content gives the same bytes."""
    head = content.head
    parts = [
        _operand(content.result),
        _spec(content.advice, 0, None),
        *(_spec(each.spec, each.offset, each.fill) for each in content.features),
        *map(_instruction, content.instructions),
        *map(_forest, content.forests),
        _padded(content.constants),
    ]
    body = b"".join(parts)
    counts = (content.observation, content.work, len(content.constants), len(content.features), len(content.forests))
    masked = (0, 0) if head.mask is None else (1, head.mask)
    last = (len(content.instructions), head.scores, head.choices, *masked)
    size = _HEADER.size + len(body)
    return _HEADER.pack(MAGIC, FORMAT, size, content.digest, *counts, *last) + body


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % _LINE)


def _operand(operand: Operand) -> bytes:
    return _OPERAND.pack(operand.space, NUMBERS[operand.dtype], 0, operand.offset)


def _spec(spec: TensorSpec, offset: int, fill: npt.NDArray[Any] | None) -> bytes:
    name = spec.name.encode()
    fixed = _SPEC.pack(NUMBERS[spec.type.dtype], len(spec.shape), len(name), int(fill is not None), offset, 0)
    values = b"" if fill is None else np.ascontiguousarray(fill, plain(spec.type.dtype)).tobytes()
    return fixed + _row(spec.shape, "<u4") + _padded(name) + _padded(values)


def _row(values: Iterable[int], dtype: str) -> bytes:
    return _padded(np.array(list(values), dtype).tobytes())


def _instruction(each: Instruction) -> bytes:
    counts = (len(each.inputs), len(each.numbers), len(each.sizes))
    return b"".join(
        [
            _INSTRUCTION.pack(each.opcode, each.function, *counts),
            _operand(each.output),
            *map(_operand, each.inputs),
            _row(each.sizes, "<u4"),
            np.array(each.numbers, "<f8").tobytes(),
        ]
    )


def _forest(each: Forest) -> bytes:
    counts = (len(each.sizes), len(each.kinds), len(each.weights), 0)
    fixed = _FOREST.pack(NUMBERS[each.dtype], each.columns, each.targets, each.aggregate, *counts)
    return fixed + b"".join(
        _padded(np.ascontiguousarray(values, dtype).tobytes())
        for values, dtype in (
            (each.sizes, "<u4"),
            (each.kinds, "u1"),
            (each.links, "<u4"),
            (each.thresholds, each.dtype),
            (each.owners, "<u4"),
            (each.weights, each.dtype),
        )
    )


def read(data: bytes) -> Content:
    """Read a form. What it says is not checked beyond its tables: see `policybridge_forms.checks`.

    Raises:
        InvalidError: the bytes are no form of this version of the format.
        TooLargeError: a table exceeds its bound.

    """
    if len(data) > MOST_BYTES:
        raise TooLargeError(f"a form has {len(data)} bytes; at most {MOST_BYTES} are possible")
    source = _Source(data)
    magic, version, size, digest, *counts = source.take(_HEADER, "header")
    observation, work, constants, features, forests, instructions, scores, choices, masked, mask = counts
    if magic != MAGIC:
        raise InvalidError("these bytes are no form of a policy: they begin otherwise")
    if version != FORMAT:
        raise InvalidError(f"the form is of version {version}; this program reads version {FORMAT}")
    if size != len(data):
        raise InvalidError(f"the form says that it has {size} bytes, and has {len(data)}")
    for what, count, most in (
        ("features", features, MOST_FEATURES),
        ("forests", forests, MOST_FORESTS),
        ("instructions", instructions, MOST_INSTRUCTIONS),
        ("bytes of an observation", observation, MOST_MEMORY),
        ("bytes of tensors", work, MOST_MEMORY),
    ):
        if count > most:
            raise TooLargeError(f"the form has {count} {what}; at most {most} are possible")
    if masked > 1 or (not masked and mask):
        raise InvalidError(f"the form's head has the mask {masked}, {mask}")
    result = source.operand()
    advice, offset, fill = source.spec("advice")
    if offset or fill is not None:
        raise InvalidError("the form's advice has a place or a default")
    head = Head(_word(Scores, scores, "kind of scores"), choices, mask if masked else None)
    named = list(starmap(Feature, (source.spec(f"feature {place}") for place in range(features))))
    listed = [source.instruction(place) for place in range(instructions)]
    trees = [source.forest(place) for place in range(forests)]
    fixed = source.bytes(constants, "constants")
    source.end()
    return Content(digest, named, observation, work, fixed, trees, listed, result, advice, head)


def _word(kind: Callable[[int], _Word], number: int, what: str) -> _Word:
    try:
        return kind(number)
    except ValueError:
        raise InvalidError(f"the form has the {what} {number}, which there is not") from None


def _dtype(number: int) -> np.dtype[Any]:
    if number >= len(DTYPES):
        raise InvalidError(f"the form has the element type {number}, which there is not")
    return DTYPES[number]


class _Source:
    """Bytes that are read from the front."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, form: Struct, what: str) -> tuple[Any, ...]:
        return form.unpack(self.bytes(form.size, what))

    def bytes(self, size: int, what: str) -> bytes:
        """Take ``size`` bytes, and the zeros behind them up to a multiple of 8."""
        end = self._at + size
        padded = end + -end % _LINE
        if padded > len(self._data):
            raise InvalidError(f"the form ends within its {what}")
        if any(self._data[end:padded]):
            raise InvalidError(f"the bytes behind the form's {what} are not 0")
        taken, self._at = self._data[self._at : end], padded
        return taken

    def array(self, count: int, dtype: npt.DTypeLike, what: str) -> npt.NDArray[Any]:
        wanted = np.dtype(dtype)
        return np.frombuffer(self.bytes(count * wanted.itemsize, what), wanted)

    def end(self) -> None:
        if self._at != len(self._data):
            raise InvalidError(f"the form has {len(self._data) - self._at} bytes behind its end")

    def operand(self) -> Operand:
        space, kind, zero, offset = self.take(_OPERAND, "operands")
        if zero:
            raise InvalidError("an operand of the form has bytes that are not 0")
        return Operand(_word(Space, space, "space"), _dtype(kind), offset)

    def spec(self, what: str) -> tuple[TensorSpec, int, npt.NDArray[Any] | None]:
        kind, rank, length, filled, offset, zero = self.take(_SPEC, what)
        if rank > MOST_AXES or length > MOST_NAME:
            raise TooLargeError(f"the form's {what} has {rank} dimensions and a name of {length} bytes")
        if filled > 1 or zero:
            raise InvalidError(f"the form's {what} has bytes that are not 0")
        dtype = _dtype(kind)
        shape = tuple(self.array(rank, "<u4", what).tolist())
        try:
            spec = TensorSpec(self.bytes(length, what).decode(), TYPES[kind], shape)
        except UnicodeDecodeError:
            raise InvalidError(f"the name of the form's {what} is no UTF-8") from None
        if spec.size > MOST_MEMORY:
            raise TooLargeError(f"the form's {what} has {spec.size} bytes; at most {MOST_MEMORY} are possible")
        fill = self.array(spec.count, plain(dtype), what) if filled else None
        return spec, offset, fill

    def instruction(self, place: int) -> Instruction:
        what = f"instruction {place}"
        opcode, function, inputs, numbers, sizes = self.take(_INSTRUCTION, what)
        known = _word(Opcode, opcode, "opcode")
        output = self.operand()
        operands = tuple(self.operand() for _ in range(inputs))
        row = tuple(self.array(sizes, "<u4", what).tolist())
        reals = tuple(self.array(numbers, "<f8", what).tolist())
        return Instruction(known, _word(Function, function, "function"), output, operands, row, reals)

    def forest(self, place: int) -> Forest:
        what = f"forest {place}"
        kind, columns, targets, aggregate, trees, nodes, weights, zero = self.take(_FOREST, what)
        if zero:
            raise InvalidError(f"the form's {what} has bytes that are not 0")
        dtype = _dtype(kind)
        return Forest(
            dtype,
            columns,
            targets,
            _word(Aggregate, aggregate, "aggregate"),
            self.array(trees, "<u4", what),
            self.array(nodes, "u1", what),
            self.array(nodes, "<u4", what),
            self.array(nodes, dtype, what),
            self.array(weights, "<u4", what),
            self.array(weights, dtype, what),
        )
