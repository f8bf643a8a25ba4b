"""The classes of ELF files, of 32 and of 64 bits: where each has its tables (System V ABI, chapter 4)."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np


@dataclass(frozen=True)
class ElfClass:
    """Where files of a class have their tables, and the types of the tables' entries.

    Attributes:
        header: bytes of the file's header.
        word: the bytes of an offset.
        place: of the offset of the section headers; ``count`` is that of their number, and two bytes on is that of the
            section of names.
        shift: bits of a relocation's info below the number of its symbol.

    """

    header: int
    word: int
    place: int
    count: int
    section: "np.dtype[Any]"
    symbol: "np.dtype[Any]"
    relocation: "np.dtype[Any]"
    shift: int


def _section_of(word: str) -> "np.dtype[Any]":
    middle = [(name, word) for name in ("flags", "address", "offset", "size")]
    return np.dtype(
        [("name", "<u4"), ("type", "<u4"), *middle, ("link", "<u4"), ("info", "<u4"), ("align", word), ("entry", word)]
    )


CLASSES: Final = {
    1: ElfClass(
        52,
        4,
        32,
        48,
        _section_of("<u4"),
        np.dtype(
            [("name", "<u4"), ("value", "<u4"), ("size", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2")]
        ),
        np.dtype([("offset", "<u4"), ("symbol", "<u4"), ("addend", "<i4")]),
        8,
    ),
    2: ElfClass(
        64,
        8,
        40,
        60,
        _section_of("<u8"),
        np.dtype(
            [("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]
        ),
        np.dtype([("offset", "<u8"), ("symbol", "<u8"), ("addend", "<i8")]),
        32,
    ),
}
"""By the byte of the header that tells them."""
