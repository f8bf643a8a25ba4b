"""The body of the C function that decides: its statements, and the constants and functions that they need."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy.typing as npt

from policybridge_train.embedding.text import array


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

    def name(self, kind: str) -> str:
        """Give a name that nothing has yet."""
        self._numbers += 1
        return f"{kind}{self._numbers}"

    def call(self, helper: str) -> str:
        """Give the name in the C file of a function of `arithmetic`."""
        self.helpers.add(helper)
        return f"{self.prefix}_{helper}"

    def array(self, values: npt.NDArray[Any]) -> str:
        """Give the name of the array of these constants."""
        key = values.dtype.str.encode() + values.tobytes()
        if key not in self._arrays:
            self._arrays[key] = self.name(f"{self.prefix}_k")
            self._constants[self._arrays[key]] = array(self._arrays[key], values)
        return self._arrays[key]

    @property
    def constants(self) -> list[str]:
        """The constant arrays that a statement reads, as C."""
        read = set(re.findall(r"\w+", "\n".join([*self.lines, *self.functions])))
        return [text for name, text in self._constants.items() if name in read]
