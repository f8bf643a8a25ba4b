"""The body of the C function that computes a graph: its tensors, constants and statements."""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import UnsupportedError
from policybridge_train.embedding.text import array, c_type, literal

Shape = tuple[int, ...]
MOST_STACK: Final = 1 << 20
"""Bytes of tensors that one decision may keep on the stack."""


@dataclass(frozen=True)
class Tensor:
    """A tensor of known shape: an array in the C function, or a constant.

    Attributes:
        name: of the C array.
        dtype: its element type.
        shape: its shape; the elements lie in C's order.
        value: its elements where they are constant.
        numbers: whether no element is ever NaN.

    """

    name: str
    dtype: np.dtype[Any]
    shape: Shape
    value: npt.NDArray[Any] | None = None
    numbers: bool = False

    @property
    def count(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)


class Body:
    """Collects the statements of the function, and the constants and helpers that they need.

    Attributes:
        prefix: of all names in the C file.
        functions: further functions, as C.
        helpers: names of the functions of `arithmetic` that are called.

    """

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self._constants: dict[str, str] = {}
        self.functions: list[str] = []
        self.helpers: set[str] = set()
        self.lines: list[str] = []
        self._depth = 1
        self._numbers = 0
        self._stack = 0
        self._arrays: dict[bytes, str] = {}

    def line(self, text: str) -> None:
        """Add a statement."""
        self.lines.append("  " * self._depth + text)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Put what follows in braces behind ``head``."""
        self.line(f"{head} {{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")

    @contextmanager
    def loop(self, index: str, count: int) -> Iterator[None]:
        """Repeat what follows for each ``index`` below ``count``; write nothing for 0."""
        begun = len(self.lines)
        with self.block(f"for (size_t {index} = 0; {index} < {count}; ++{index})"):
            yield
        if not count:
            del self.lines[begun:]

    def unread(self, tensor: Tensor) -> None:
        """Keep compilers from warning of an array that nothing reads."""
        if tensor.value is None:
            self.line(f"(void){tensor.name};")

    def name(self, kind: str) -> str:
        """Give a name that nothing has yet."""
        self._numbers += 1
        return f"{kind}{self._numbers}"

    def call(self, helper: str) -> str:
        """Give the name in the C file of a function of `arithmetic`."""
        self.helpers.add(helper)
        return f"{self.prefix}_{helper}"

    def new(self, dtype: npt.DTypeLike, shape: Sequence[int]) -> Tensor:
        """Declare an array.

        Raises:
            UnsupportedError: the tensors take more of the stack than `MOST_STACK`.

        """
        made = Tensor(self.name("t"), np.dtype(dtype), tuple(int(dim) for dim in shape))
        self._stack += made.count * made.dtype.itemsize
        if self._stack > MOST_STACK:
            raise UnsupportedError(f"the policy's tensors take more than {MOST_STACK} bytes, for which C has no place")
        self.line(f"{c_type(made.dtype)} {made.name}[{max(made.count, 1)}];")
        if not made.count:
            self.unread(made)
        return made

    def constant(self, values: npt.NDArray[Any]) -> Tensor:
        """Give a constant tensor. Its array is written where `read` first needs it."""
        return Tensor("", values.dtype, values.shape, values)

    def array(self, tensor: Tensor) -> str:
        """Give the name of the tensor's array."""
        if tensor.value is None:
            return tensor.name
        key = tensor.dtype.str.encode() + tensor.value.tobytes()
        if key not in self._arrays:
            self._arrays[key] = self.name(f"{self.prefix}_k")
            self._constants[self._arrays[key]] = array(self._arrays[key], tensor.value)
        return self._arrays[key]

    @property
    def constants(self) -> list[str]:
        """The constant arrays that a statement reads, as C."""
        read = set(re.findall(r"\w+", "\n".join([*self.lines, *self.functions])))
        return [text for name, text in self._constants.items() if name in read]

    def read(self, tensor: Tensor, index: str) -> str:
        """Give the expression of one element."""
        if tensor.value is not None and tensor.count == 1 and not _extreme(tensor.value):
            return literal(tensor.value.reshape(-1)[0], tensor.dtype)
        return f"{self.array(tensor)}[{'0' if tensor.count == 1 else index}]"

    def elementwise(
        self, inputs: Sequence[Tensor], dtype: npt.DTypeLike, expression: Callable[..., str], shape: Shape | None = None
    ) -> Tensor:
        """Compute each element of a new tensor from those of ``inputs``, broadcast as numpy does."""
        wanted = np.broadcast_shapes(*(each.shape for each in inputs)) if shape is None else shape
        made = self.new(dtype, wanted)
        with self.over(wanted, inputs) as (place, places):
            reads = [self.read(each, at) for each, at in zip(inputs, places, strict=True)]
            self.line(f"{made.name}[{place}] = {expression(*reads)};")
        return made

    @contextmanager
    def over(self, shape: Shape, inputs: Sequence[Tensor]) -> Iterator[tuple[str, list[str]]]:
        """Loop over ``shape``; give the index into an array of it, and those into the broadcast ``inputs``."""
        count = math.prod(shape)
        if not count or all(each.count in (1, count) for each in inputs):
            with self.loop("i", count):
                yield "i", ["i"] * len(inputs)
            return
        strides = [_broadcast_strides(each.shape, shape) for each in inputs]
        axes = [axis for axis, size in enumerate(shape) if size != 1]
        names = {axis: f"i{axis}" for axis in axes}
        for axis in axes:
            self.line(f"for (size_t {names[axis]} = 0; {names[axis]} < {shape[axis]}; ++{names[axis]}) {{")
            self._depth += 1
        own = strides_of(shape)
        yield index_of(names, own), [index_of(names, each) for each in strides]
        for _ in axes:
            self._depth -= 1
            self.line("}")


def _extreme(value: npt.NDArray[Any]) -> bool:
    """Whether an integer is the least or the greatest of its type: compilers warn of comparing with such a literal."""
    return value.dtype.kind in "iu" and int(value.reshape(-1)[0]) in (
        np.iinfo(value.dtype).min,
        np.iinfo(value.dtype).max,
    )


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


def index_of(names: dict[int, str], strides: Sequence[int]) -> str:
    """Write the sum of the indices, each times the stride of its axis."""
    terms = [name if strides[axis] == 1 else f"{name} * {strides[axis]}" for axis, name in names.items()]
    return " + ".join(term for term, axis in zip(terms, names, strict=True) if strides[axis]) or "0"
