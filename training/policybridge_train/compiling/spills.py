"""The objectives of register allocation: what spilling costs each function, by LLVM's remarks."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from policybridge_client.decisions.text import to_text
from policybridge_client.llvm.inliner import read_scalar
from policybridge_train.compiling.objectives import Objective
from policybridge_train.objects.elf import ObjectFile

_REMARKS: Final = "regalloc.yaml"

_WEIGHTS: Final = {
    "TotalSpillsCost": 1.0,
    "TotalFoldedSpillsCost": 1.0,
    "TotalReloadsCost": 4.0,
    "TotalFoldedReloadsCost": 4.0,
    "TotalCopiesCost": 0.2,
}
"""What LLVM itself weighs instructions with to judge a register allocation: a store, a load, a copy
(llvm/lib/CodeGen/RegAllocScore.cpp)."""

_FUNCTION: Final = re.compile(r"^Function: +(.+)$", re.MULTILINE)
_COST: Final = re.compile(r"^ +- (\w+): +'([-+.\deE]+)'$", re.MULTILINE | re.ASCII)


class Spills(Objective):
    """The stores, reloads and copies that the register allocator added; see `spill_costs`."""

    def arguments(self, folder: Path) -> Sequence[str]:
        """Give the arguments for LLVM's remarks of its register allocator."""
        return remark_arguments(folder / _REMARKS)

    def total(self, _: ObjectFile, folder: Path) -> float:
        """Give the sum over all functions."""
        return sum(spill_costs(folder / _REMARKS).values())

    def costs(self, made: ObjectFile, folder: Path) -> Mapping[str, float]:
        """Give the cost of each function; LLVM remarks on functions that spill or copy, and the others cost nothing."""
        return dict.fromkeys(made.functions, 0.0) | spill_costs(folder / _REMARKS)


class SpillsLog2(Spills):
    """The sum of log2(1 + spills) over the functions: one deep loop would outweigh all other functions else."""

    def total(self, made: ObjectFile, folder: Path) -> float:
        """Give the sum over all functions."""
        return sum(self.costs(made, folder).values())

    def costs(self, made: ObjectFile, folder: Path) -> Mapping[str, float]:
        """Give the cost of each function."""
        return {name: math.log2(1 + cost) for name, cost in super().costs(made, folder).items()}


def remark_arguments(file: Path) -> Sequence[str]:
    """Give the arguments of cc1 that make LLVM write its remarks on register allocation to a file."""
    return ["-opt-record-file", str(file), "-opt-record-passes", "regalloc", "-opt-record-format", "yaml"]


def spill_costs(remarks: Path) -> dict[str, float]:
    """Read what spilling costs each function that spills or copies, by the function's name.

    It is the sum over stores, reloads and copies that the register allocator added, each times the frequency of its
    block relative to the function's entry, and times LLVM's own weight for such an instruction. Remarks of loops are
    left out: the function's own have them in them (llvm/lib/CodeGen/RegAllocGreedy.cpp, reportStats).
    """
    if not remarks.exists():
        return {}
    return dict(_costs(to_text(remarks.read_bytes())))


def _costs(text: str) -> Iterator[tuple[str, float]]:
    for remark in text.split("\n...\n"):
        function = _FUNCTION.search(remark)
        if function and "\nName:            SpillReloadCopies\n" in remark:
            yield (
                read_scalar(function[1]),
                sum(_WEIGHTS.get(name, 0.0) * float(value) for name, value in _COST.findall(remark)),
            )
