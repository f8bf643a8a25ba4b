"""Collects the instructions of a form: its tensors, constants and forests."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import UnsupportedError
from policybridge_forms import Forest, Function, Instruction, Opcode, Operand, Space
from policybridge_forms.words import MOST_AXES, MOST_MEMORY

Shape = tuple[int, ...]
_LINE: Final = 8


@dataclass(frozen=True)
class Tensor:
    """A tensor of known shape, in one of the spaces of the form; a constant has its place where it is first read.

    Attributes:
        dtype: its element type.
        shape: its shape; the elements lie in C's order.
        value: its elements where they are constant.
        space: where it lies, if it is none.
        offset: its place there, in bytes.

    """

    dtype: np.dtype[Any]
    shape: Shape
    value: npt.NDArray[Any] | None = None
    space: Space = Space.WORK
    offset: int = 0

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def strides(self) -> list[int]:
        """The distance, in elements, between neighbours along each axis."""
        return strides_of(self.shape)


class Builder:
    """Collects instructions.

    Attributes:
        instructions: so far.
        forests: that they name.
        work: bytes of the tensors that they write.

    """

    def __init__(self) -> None:
        self.instructions: list[Instruction] = []
        self.forests: list[Forest] = []
        self.work = 0
        self._constants = bytearray()
        self._places: dict[tuple[str, bytes], int] = {}

    @property
    def constants(self) -> bytes:
        """The constants that the instructions read."""
        return bytes(self._constants)

    def new(self, dtype: npt.DTypeLike, shape: Sequence[int]) -> Tensor:
        """Make place for a tensor.

        Raises:
            UnsupportedError: the tensors take more than a form may.

        """
        made = Tensor(np.dtype(dtype), tuple(int(dim) for dim in shape), None, Space.WORK, self.work)
        self.work += made.count * made.dtype.itemsize
        self.work += -self.work % _LINE
        if self.work > MOST_MEMORY:
            raise UnsupportedError(f"the policy's tensors take more than {MOST_MEMORY} bytes")
        return made

    def constant(self, values: npt.ArrayLike, dtype: npt.DTypeLike | None = None) -> Tensor:
        """Give a constant tensor."""
        made = np.asarray(values, dtype)
        return Tensor(made.dtype, made.shape, made)

    def operand(self, tensor: Tensor, at: int = 0) -> Operand:
        """Give where a tensor's element ``at`` lies."""
        if tensor.value is None:
            return Operand(tensor.space, tensor.dtype, tensor.offset + at * tensor.dtype.itemsize)
        data = np.ascontiguousarray(tensor.value).tobytes()
        key = (tensor.dtype.str, data)
        if key not in self._places:
            self._places[key] = len(self._constants)
            self._constants += data + bytes(-len(data) % _LINE)
        return Operand(Space.CONSTANTS, tensor.dtype, self._places[key] + at * tensor.dtype.itemsize)

    def emit(  # noqa: PLR0913, PLR0917
        self,
        opcode: Opcode,
        output: Tensor | Operand,
        inputs: Sequence[Tensor | Operand],
        sizes: Sequence[int],
        function: Function = Function.PLAIN,
        numbers: Sequence[float] = (),
    ) -> None:
        """Add an instruction."""
        to, *operands = (self.operand(each) if isinstance(each, Tensor) else each for each in (output, *inputs))
        row = tuple(int(each) for each in sizes)
        self.instructions.append(Instruction(opcode, function, to, tuple(operands), row, tuple(map(float, numbers))))

    def forest(self, forest: Forest, x: Tensor) -> Tensor:
        """Give the scores of a forest, shape [1, targets]."""
        made = self.new(forest.dtype, (1, forest.targets))
        self.forests.append(forest)
        self.emit(Opcode.FOREST, made, [x], [len(self.forests) - 1])
        return made

    def elementwise(
        self,
        function: Function,
        inputs: Sequence[Tensor],
        dtype: npt.DTypeLike | None = None,
        numbers: Sequence[float] = (),
        shape: Shape | None = None,
    ) -> Tensor:
        """Compute each element of a new tensor from those of ``inputs``, broadcast as numpy does.

        Raises:
            UnsupportedError: the tensors have too many dimensions.

        """
        wanted = np.broadcast_shapes(*(each.shape for each in inputs)) if shape is None else shape
        made = self.new(inputs[0].dtype if dtype is None else dtype, wanted)
        if all(each.count in (1, made.count) for each in inputs):
            dims, strides = [made.count], [[int(each.count > 1)] for each in inputs]
        else:
            axes = [axis for axis, size in enumerate(wanted) if size != 1]
            dims = [wanted[axis] for axis in axes]
            strides = [[_broadcast_strides(each.shape, wanted)[axis] for axis in axes] for each in inputs]
        if len(dims) > MOST_AXES:
            raise UnsupportedError(f"a tensor of the policy has more than {MOST_AXES} dimensions")
        if made.count:
            self.emit(Opcode.MAP, made, inputs, [*dims, *chain.from_iterable(strides)], function, numbers)
        return made

    def pick(self, x: Tensor, places: npt.NDArray[Any]) -> Tensor:
        """Give the elements of ``x`` at the flat indices ``places``, in their shape; a view if contiguous."""
        flat = places.reshape(-1)
        if x.value is not None:
            return self.constant(x.value.reshape(-1)[flat].reshape(places.shape))
        if len(flat) and np.array_equal(flat, np.arange(flat[0], flat[0] + len(flat))):
            return Tensor(x.dtype, places.shape, None, x.space, x.offset + int(flat[0]) * x.dtype.itemsize)
        made = self.new(x.dtype, places.shape)
        if made.count:
            self.emit(Opcode.PICK, made, [x, self.constant(flat, "<u4")], [made.count, x.count])
        return made

    def place(self, x: Tensor, output: Tensor, at: int, sizes: Sequence[int]) -> None:
        """Copy ``x`` to the element ``at`` of ``output`` on: outer, size and step."""
        if x.count:
            self.emit(Opcode.PLACE, self.operand(output, at), [x], sizes)


def strides_of(shape: Sequence[int]) -> list[int]:
    """Give the distance, in elements, between neighbours along each axis."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return strides[::-1]


def _broadcast_strides(shape: Shape, wanted: Shape) -> list[int]:
    padded = (1,) * (len(wanted) - len(shape)) + shape
    return [0 if size == 1 else stride for size, stride in zip(padded, strides_of(padded), strict=True)]
