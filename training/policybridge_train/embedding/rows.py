"""The operands of a form in C: arrays of the function, members of the observation, constants."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from policybridge_core.errors import UnsupportedError
from policybridge_forms import Function, Instruction, Opcode, Operand, Space
from policybridge_forms.checks import spans
from policybridge_forms.content import Content, plain
from policybridge_train.embedding.body import Body
from policybridge_train.embedding.interface import Embedded
from policybridge_train.embedding.text import c_type, literal


@dataclass(frozen=True)
class Row:
    """Elements side by side.

    Attributes:
        name: of the C array.
        start: the place of the first one there.
        literal: the element itself, if it is one constant float.

    """

    name: str
    dtype: np.dtype[Any]
    start: int = 0
    literal: str = ""

    def __getitem__(self, index: str) -> str:
        """Give the expression of one element."""
        if self.literal:
            return self.literal
        if not self.start:
            return f"{self.name}[{index}]"
        return f"{self.name}[{self.start}]" if index == "0" else f"{self.name}[{self.start} + {index}]"


@dataclass(frozen=True)
class _Region:
    """An array of the function: the bytes of the form's tensors from ``begin`` to ``end``."""

    name: str
    dtype: np.dtype[Any]
    begin: int
    end: int


class Rows:
    """Gives operands their C. Declares the arrays of a form's tensors at its making.

    Raises:
        UnsupportedError: two instructions see the same bytes as different types, which C does not allow.

    """

    def __init__(self, policy: Embedded, body: Body) -> None:
        self._content = policy.content
        self._members = {each.spec.name: each.member for each in policy.members}
        self._body = body
        self._regions = list(_regions(policy.content))
        self._never_nan = np.zeros(policy.content.work, np.bool_)
        self._pointers: dict[Operand, str] = {}
        for each in self._regions:
            count = (each.end - each.begin) // each.dtype.itemsize
            body.line(f"{c_type(each.dtype)} {each.name}[{count}];")
            # Nothing may read what an instruction gives.
            body.line(f"(void){each.name};")

    def row(self, operand: Operand, count: int) -> Row:
        """Give the first ``count`` elements of an operand."""
        if not count:
            return Row("", operand.dtype)
        if operand.space is Space.CONSTANTS:
            return self._constant(operand, count)
        if operand.space is Space.OBSERVATION:
            return self._observed(operand, count)
        region = next(each for each in self._regions if each.begin <= operand.offset < each.end)
        return Row(region.name, operand.dtype, (operand.offset - region.begin) // operand.dtype.itemsize)

    def _constant(self, operand: Operand, count: int) -> Row:
        values = np.frombuffer(self._content.constants, plain(operand.dtype), count, operand.offset)
        if count == 1 and operand.dtype.kind == "f":
            return Row("", operand.dtype, 0, f"({literal(values[0], values.dtype)})")
        # Compilers warn of comparisons with integers as literals where they are always true.
        return Row(self._body.array(values), operand.dtype)

    def _observed(self, operand: Operand, count: int) -> Row:
        before = [each for each in self._content.features if each.offset <= operand.offset and each.spec.count]
        feature = before[-1]
        member, start = self._members[feature.spec.name], (operand.offset - feature.offset) // operand.dtype.itemsize
        if start + count <= feature.spec.count:
            return Row(f"observation->{member}", operand.dtype, start)
        if operand not in self._pointers:
            # Features of one type that lie side by side.
            name, c = self._body.name("o"), c_type(operand.dtype)
            place = f"(const unsigned char *)observation + offsetof(struct {self._body.prefix}_observation, {member})"
            self._body.line(f"const {c} *{name} = (const {c} *)(const void *)({place});")
            self._pointers[operand] = name
        return Row(self._pointers[operand], operand.dtype, start)

    def follow(self, each: Instruction) -> None:
        """Note which elements of the output are never NaN."""
        counts, count = spans(self._content, each)
        if each.output.dtype.kind != "f" or each.opcode not in (Opcode.MAP, Opcode.PLACE):
            return
        if each.opcode is Opcode.MAP and each.function is not Function.CAST:
            return
        if self.is_number(each.inputs[0], counts[0]):
            size = each.output.dtype.itemsize
            end = each.output.offset + count * size
            self._never_nan[each.output.offset : end] = True

    def is_number(self, operand: Operand, count: int) -> bool:
        """Tell whether no element is ever NaN."""
        if operand.dtype.kind != "f":
            return True
        end = operand.offset + count * operand.dtype.itemsize
        return operand.space is Space.WORK and bool(self._never_nan[operand.offset : end].all())


def _regions(content: Content) -> Iterator[_Region]:
    """Join the bytes that one instruction sees as a whole."""
    seen: list[tuple[int, int, np.dtype[Any]]] = sorted(_seen(content), key=lambda each: each[:2])
    number, place = 1, 0
    while place < len(seen):
        begin, end, dtype = seen[place]
        while place < len(seen) and seen[place][0] < end:
            if c_type(seen[place][2]) != c_type(dtype):
                raise UnsupportedError("an instruction of the form reads another type than was written")
            end = max(end, seen[place][1])
            place += 1
        yield _Region(f"t{number}", dtype, begin, end)
        number += 1


def _seen(content: Content) -> Iterator[tuple[int, int, np.dtype[Any]]]:
    for each in content.instructions:
        counts, count = spans(content, each)
        operands: Sequence[tuple[Operand, int]] = [*zip(each.inputs, counts, strict=True), (each.output, count)]
        for operand, size in operands:
            if operand.space is Space.WORK and size:
                yield operand.offset, operand.offset + size * operand.dtype.itemsize, operand.dtype
    if content.result.space is Space.WORK and content.results:
        end = content.result.offset + content.results * content.result.dtype.itemsize
        yield content.result.offset, end, content.result.dtype
