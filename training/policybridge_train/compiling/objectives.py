"""Objectives: costs to minimise, each read from the object or from LLVM's remarks."""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, Protocol, cast

import numpy as np

from policybridge_core.plugins import Table
from policybridge_train.objects.elf import Location, ObjectFile

_CONSTANTS: Final = ".rodata"
_ENTRIES: Final = (4, 8)
"""Bytes of an entry of a jump table: an offset, or an address."""

_FRAMES: Final = ".eh_frame"
_EXCEPTIONS: Final = ".gcc_except_table"
_RELATIVE: Final = 4
_START: Final = 8
"""Bytes of an entry before the address of its function."""


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
    """Bytes that are loaded and not written, as llvm-size counts them; of a function, its parts of tables, too."""

    def total(self, made: ObjectFile, _: Path) -> float:
        """Give the bytes of the module."""
        return made.text

    def costs(self, made: ObjectFile, _: Path) -> Mapping[str, float]:
        """Give the bytes of each function, with its jump tables and its part of the unwind and exception tables."""
        return function_bytes(made)


class Exec(Text):
    """Bytes of code."""

    def total(self, made: ObjectFile, _: Path) -> float:
        """Give the bytes of the module."""
        return made.exec

    def costs(self, made: ObjectFile, _: Path) -> Mapping[str, float]:
        """Give the bytes of each function."""
        return made.functions


OBJECTIVES: Final = Table(
    kind="objective",
    group="policybridge.objectives",
    own={
        "text": "policybridge_train.compiling.objectives:Text",
        "exec": "policybridge_train.compiling.objectives:Exec",
        "spills": "policybridge_train.compiling.spills:Spills",
        "spills_log2": "policybridge_train.compiling.spills:SpillsLog2",
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


def function_bytes(made: ObjectFile) -> dict[str, int]:
    """Give the size of each function: its code, its jump tables, and its parts of the unwind and exception tables.

    Raises:
        InvalidError: the file is cut off.

    """
    beside, tables = unwinding(made), jump_tables(made)
    return {name: size + beside.get(name, 0) + tables.get(name, 0) for name, size in made.functions.items()}


def jump_tables(made: ObjectFile) -> dict[str, int]:
    """Give the bytes of each function's jump tables; functions without one are left out.

    The entries of a table are relocations to code, one behind another, and its function names the first one. On x86
    code names it relative to the end of an instruction, 4 bytes on. AArch64's tables have no relocations, and are not
    found.

    Raises:
        InvalidError: the file is cut off.

    """
    entries = _jumps(made)
    if not entries:
        return {}
    starts = dict(_table_starts(made, entries))
    found: dict[str, int] = {}
    for start, function in starts.items():
        places = entries[start.section]
        step = next(each for each in _ENTRIES if start.offset + each in places or each == _ENTRIES[-1])
        end = start.offset + step
        while end in places and Location(start.section, end) not in starts:
            end += step
        found[function] = found.get(function, 0) + end - start.offset
    return found


def _jumps(made: ObjectFile) -> dict[int, set[int]]:
    """Give the offsets, in each section of constants, of relocations to code."""
    found = {}
    for index, name in enumerate(made.section_names):
        if name.startswith(_CONSTANTS):
            offsets, targets = made.relocations(index)
            jumps = {at for at, target in zip(offsets.tolist(), targets, strict=True) if made.is_code(target.section)}
            found.update({index: jumps} if jumps else {})
    return found


def _table_starts(made: ObjectFile, entries: Mapping[int, set[int]]) -> Iterator[tuple[Location, str]]:
    """Give the start of each table, and the function that names it."""
    functions = sorted(made.function_starts().items())
    for section in sorted({start.section for start, _ in functions}):
        for at, target in zip(*made.relocations(section), strict=True):
            places = entries.get(target.section, set())
            start = next((each for each in (target.offset + _RELATIVE, target.offset) if each in places), None)
            if start is not None:
                owner = bisect_right(functions, Location(section, int(at)), key=lambda each: each[0]) - 1
                yield Location(target.section, start), functions[owner][1]


def unwinding(made: ObjectFile) -> dict[str, int]:
    """Give the bytes of each function's entry in the unwind table, and of its exception table.

    These are no constants. An entry tells where the function saves each register, so that one which saves six takes
    some 120 bytes and one which saves none 24; at -Oz they are a sixth of a C program's text (Linux Standard Base,
    10.6; clang writes them with ``-funwind-tables``). Functions without an entry are left out. What several share (the
    heads of the table) is nobody's.

    Raises:
        InvalidError: the file is cut off.

    """
    names = made.section_names
    tables = {index for index, name in enumerate(names) if name.startswith(_EXCEPTIONS)}
    functions = made.function_starts()
    entries = list(_entries(made))
    starts = sorted({target for _, targets in entries for target in targets if target.section in tables})
    found: dict[str, int] = {}
    for size, targets in entries:
        owners = [functions[target] for target in targets if target in functions]
        if owners:
            parts = (_size_from(target, starts, made) for target in targets if target.section in tables)
            found[owners[0]] = found.get(owners[0], 0) + size + sum(parts)
    return found


def _entries(made: ObjectFile) -> Iterator[tuple[int, list[Location]]]:
    """Give the size of each entry, its function, and its exception table if it has one."""
    for index, name in enumerate(made.section_names):
        if name != _FRAMES:
            continue
        offsets, targets = made.relocations(index)
        data = made.section_content(index)
        start = 0
        while start + _START <= len(data):
            size = int.from_bytes(data[start : start + 4], "little") + 4
            # An identifier of zero is that of a head. A size of all ones would be one of 64 bits, which nobody writes.
            if data[start + 4 : start + _START] != b"\0\0\0\0":
                first, last = np.searchsorted(offsets, (start + _START, start + size))
                yield size, targets[first:last]
            start += size


def _size_from(start: Location, starts: list[Location], made: ObjectFile) -> int:
    following = bisect_right(starts, start)
    same = following < len(starts) and starts[following].section == start.section
    end = starts[following].offset if same else int(made.sections[start.section]["size"])
    return max(0, end - start.offset)
