"""Objectives: costs to minimise, each read from the object or from LLVM's remarks."""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, Protocol, cast

from policybridge_core.plugins import Table
from policybridge_train.compiling.spills import remark_arguments, spill_costs
from policybridge_train.objects.elf import ObjectFile
from policybridge_train.objects.unwinding import function_bytes

_REMARKS: Final = "regalloc.yaml"


class Objective(Protocol):
    """A cost. A compile's ``folder`` is that of its files; it is removed after the compile."""

    def arguments(self, folder: Path) -> Sequence[str]:  # noqa: ARG002 - for those that need it
        """Give the arguments of cc1 that make LLVM write the remarks to read, if any; they change no object."""
        return ()

    def total(self, made: ObjectFile, folder: Path) -> float:
        """Give the module's cost.

        Raises:
            InvalidError: the object is malformed.

        """
        ...

    def costs(self, made: ObjectFile, folder: Path) -> Mapping[str, float]:
        """Give the cost of each function, by its name; see `total`."""
        ...


class Text(Objective):
    """Bytes that are loaded and not written, as llvm-size counts them; of a function, its unwind table's part, too."""

    def total(self, made: ObjectFile, _: Path) -> float:
        """Give the bytes of the module."""
        return made.text

    def costs(self, made: ObjectFile, _: Path) -> Mapping[str, float]:
        """Give the bytes of each function, with its part of the unwind and exception tables."""
        return function_bytes(made)


class Exec(Text):
    """Bytes of code."""

    def total(self, made: ObjectFile, _: Path) -> float:
        """Give the bytes of the module."""
        return made.exec

    def costs(self, made: ObjectFile, _: Path) -> Mapping[str, float]:
        """Give the bytes of each function."""
        return made.functions


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


OBJECTIVES: Final = Table(
    kind="objective",
    group="policybridge.objectives",
    own={
        "text": "policybridge_train.compiling.objectives:Text",
        "exec": "policybridge_train.compiling.objectives:Exec",
        "spills": "policybridge_train.compiling.objectives:Spills",
        "spills_log2": "policybridge_train.compiling.objectives:SpillsLog2",
    },
)
"""Each is a class without arguments. The cost of running a program is its task's to measure."""


@cache
def _objective(name: str) -> Objective:
    return cast("type[Objective]", OBJECTIVES.load(name))()


class Objectives:
    """Several objectives of one compile.

    Args:
        names: in `OBJECTIVES`.
        folder: of the compile.

    Raises:
        NotFoundError: there is no objective of a name.

    """

    def __init__(self, names: Sequence[str], folder: Path) -> None:
        self._parts = {name: _objective(name) for name in names}
        self._folder = folder
        self.arguments = [word for each in self._parts.values() for word in each.arguments(folder)]

    def totals(self, made: ObjectFile) -> Mapping[str, float]:
        """Give the module's costs, by objective."""
        return {name: each.total(made, self._folder) for name, each in self._parts.items()}

    def costs(self, made: ObjectFile) -> Mapping[str, float]:
        """Give the first objective's costs by function."""
        return next(iter(self._parts.values())).costs(made, self._folder)
