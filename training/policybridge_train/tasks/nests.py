"""Made-up loop nests: matrix products and convolutions in MLIR, of shapes that chance draws, and a program for each."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from random import Random
from typing import Final

_SHORTEST, _LONGEST = 8, 256
_MOST: Final = 1 << 19
"""Products of a nest: cachegrind takes well under a second for so many."""
_LEAST: Final = 48 << 10
"""Bytes of all arrays: fewer would stay in a cache of 32 KiB whatever is done."""

_ELEMENTS: Final = {"f32": "float", "f64": "double"}


@dataclass(frozen=True)
class Nest:
    """One linalg operation on three arrays: ``c`` += ``a`` by ``b``.

    Attributes:
        kind: ``matmul`` or ``conv``.
        sizes: of a matmul rows, columns and depth; of a convolution height and width of the output, channels in
            and out, and height and width of the kernel.
        element: ``f32`` or ``f64``.

    """

    kind: str
    sizes: tuple[int, ...]
    element: str

    @property
    def name(self) -> str:
        """Names the shape: ``matmul-48x64x32-f32``."""
        return f"{self.kind}-{'x'.join(map(str, self.sizes))}-{self.element}"

    @property
    def products(self) -> int:
        """Multiplications in all."""
        return prod(self.sizes)

    @property
    def bytes(self) -> int:
        """Of all arrays."""
        return sum(map(prod, self.shapes)) * int(self.element[1:]) // 8

    @property
    def shapes(self) -> Sequence[tuple[int, ...]]:
        """Of ``a``, ``b`` and ``c``."""
        if self.kind == "matmul":
            rows, columns, depth = self.sizes
            return (rows, depth), (depth, columns), (rows, columns)
        height, width, channels, made, kernel_height, kernel_width = self.sizes
        image = (1, height + kernel_height - 1, width + kernel_width - 1, channels)
        return image, (kernel_height, kernel_width, channels, made), (1, height, width, made)

    def to_mlir(self) -> str:
        """Give a module with the function ``nest``, on arrays that the program defines."""
        types = [f"memref<{'x'.join(map(str, shape))}x{self.element}>" for shape in self.shapes]
        names = ("a", "b", "c")
        operation = "linalg.matmul" if self.kind == "matmul" else "linalg.conv_2d_nhwc_hwcf"
        declared = [f"memref.global @{name} : {of}" for name, of in zip(names, types, strict=True)]
        taken = [f"  %{name} = memref.get_global @{name} : {of}" for name, of in zip(names, types, strict=True)]
        call = f"  {operation} ins(%a, %b : {types[0]}, {types[1]}) outs(%c : {types[2]})"
        return "\n".join([*declared, "func.func @nest() {", *taken, call, "  return", "}", ""])

    def to_c(self) -> str:
        """Give the program: it fills the arrays, calls ``nest``, and prints a sum that depends on every result."""
        element = _ELEMENTS[self.element]
        counts = [prod(shape) for shape in self.shapes]
        arrays = ", ".join(f"{name}[{count}]" for name, count in zip("abc", counts, strict=True))
        return (
            "#include <stdio.h>\n"
            f"_Alignas(64) {element} {arrays};\nvoid nest(void);\nint main(void) {{\n"
            f"  for (int i = 0; i < {counts[0]}; ++i) a[i] = i % 7 - 3;\n"
            f"  for (int i = 0; i < {counts[1]}; ++i) b[i] = i % 5 - 2;\n"
            "  nest();\n  double sum = 0;\n"
            f"  for (int i = 0; i < {counts[2]}; ++i) sum += c[i] * (i % 13 + 1);\n"
            '  printf("%.17g\\n", sum);\n  return 0;\n}\n'
        )


def nests(count: int) -> Sequence[Nest]:
    """Draw ``count`` different nests, alternately a matmul and a convolution; each call draws the same ones."""
    chance = Random("nests")  # noqa: S311 - no secret
    found: dict[str, Nest] = {}
    while len(found) < count:
        nest = _drawn(chance, "conv" if len(found) % 2 else "matmul")
        if nest.products <= _MOST and nest.bytes >= _LEAST:
            found.setdefault(nest.name, nest)
    return list(found.values())


def _drawn(chance: Random, kind: str) -> Nest:
    def length(shortest: int, longest: int) -> int:
        drawn: float = shortest * (longest / shortest) ** chance.random()
        return round(drawn)

    element = chance.choice(sorted(_ELEMENTS))
    if kind == "matmul":
        return Nest(kind, tuple(length(_SHORTEST, _LONGEST) for _ in range(3)), element)
    kernel = chance.choice((1, 3, 5))
    image = (length(6, 48), length(6, 48))
    return Nest(kind, (*image, length(4, 128), length(4, 128), kernel, kernel), element)
