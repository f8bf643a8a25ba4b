"""The distinct tests of an ensemble's nodes: many nodes ask the same, so each is answered once for an observation."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import count
from typing import Any, Final

import numpy as np

from policybridge_server.forms.forest import Placed
from policybridge_train.embedding.text import c_type, literal, table

_FEW: Final = 4
"""Thresholds of a column that are compared one by one; more are searched."""

_SEARCH: Final = """\
/* How many of the sorted numbers are below x; none for NaN. */
static size_t NAME_below(const REAL *sorted, size_t count, REAL x) {
  size_t begin = 0;
  while (count > 1) {
    size_t half = count / 2;
    begin += half * (size_t)(x > sorted[begin + half - 1]);
    count -= half;
  }
  return begin + (size_t)(x > sorted[begin]);
}
"""


class NodeTests:
    """Numbers the tests ``x > threshold``, those of a column side by side in the order of the thresholds.

    So all tests of a column are as many ones as it has thresholds below x, followed by zeros. Number 0 is the test of
    the leaves, which is never true.

    Args:
        nodes: of all trees.
        numbers: whether no column is ever NaN.

    Attributes:
        numbers: (column, threshold, whether NaN passes) → number of the test.

    """

    def __init__(self, nodes: Sequence[Placed], numbers: bool) -> None:
        keys = {self._key(node, numbers) for node in nodes if node.skip}
        order = sorted(keys, key=lambda key: (key[0], key[2], key[1]))
        self.numbers = dict(zip(order, count(1), strict=False))
        self._never_nan = numbers
        groups: dict[tuple[int, bool], list[float]] = defaultdict(list)
        for column, threshold, nan in order:
            groups[column, nan].append(threshold)
        self._groups = groups

    @staticmethod
    def _key(node: Placed, numbers: bool) -> tuple[int, float, bool]:
        return node.feature, node.threshold, node.nan and not numbers

    def number(self, node: Placed) -> int:
        """Give the number of a node's test."""
        return self.numbers[self._key(node, self._never_nan)] if node.skip else 0

    def tables(self, name: str, dtype: np.dtype[Any]) -> str:
        """Write the thresholds, the ones and zeros to copy, and the search."""
        if not self._groups:
            return ""
        most, real = max(map(len, self._groups.values())), c_type(dtype)
        thresholds = [literal(dtype.type(each), dtype) for group in self._groups.values() for each in group]
        parts = [
            table(real, f"{name}_thresholds", thresholds),
            table("uint8_t", f"{name}_answers", ["1"] * most + ["0"] * most),
        ]
        if most > _FEW:
            parts.append(_SEARCH.replace("REAL", real).replace("NAME", name))
        return "\n".join(parts)

    def lines(self, name: str) -> list[str]:
        """Write what answers all tests of the columns ``x``."""
        if not self._groups:
            return ["  tests[0] = 0;", "  (void)x;"]
        most = max(map(len, self._groups.values()))
        lines, begun = ["  size_t ones;", "  tests[0] = 0;"], 0
        for (column, nan), thresholds in self._groups.items():
            size = len(thresholds)
            lines.append(f"  ones = {self._ones(name, column, begun, size)};")
            if nan:
                lines.append(f"  if (x[{column}] != x[{column}]) ones = {size};")
            lines.append(f"  memcpy(tests + {begun + 1}, {name}_answers + {most} - ones, {size});")
            begun += size
        return lines

    @staticmethod
    def _ones(name: str, column: int, begun: int, size: int) -> str:
        if size > _FEW:
            return f"{name}_below({name}_thresholds + {begun}, {size}, x[{column}])"
        return " + ".join(f"(size_t)(x[{column}] > {name}_thresholds[{begun + index}])" for index in range(size))
