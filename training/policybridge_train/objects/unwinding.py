"""The size of each function beside its code: its entry in the unwind table, and its exception table.

These are no constants. An entry tells where the function saves each register, so that one which saves six takes some
120 bytes and one which saves none 24; at -Oz they are a sixth of a C program's text (Linux Standard Base, 10.6;
clang writes them with ``-funwind-tables``).
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

import numpy as np

from policybridge_train.objects.elf import Location, ObjectFile

_FRAMES: Final = ".eh_frame"
_EXCEPTIONS: Final = ".gcc_except_table"
_START: Final = 8
"""Bytes of an entry before the address of its function."""


def function_bytes(made: ObjectFile) -> dict[str, int]:
    """Give the size of each function: its code, and its parts of the unwind and exception tables.

    Raises:
        InvalidError: the file is cut off.

    """
    beside = unwinding(made)
    return {name: size + beside.get(name, 0) for name, size in made.functions.items()}


def unwinding(made: ObjectFile) -> dict[str, int]:
    """Give the bytes of each function's entry in the unwind table, and of its exception table.

    Functions without an entry are left out. What several share (the heads of the table) is nobody's.

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
