"""The symbols that an object defines and needs: they tell which members of an archive a linker takes."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from policybridge_core.errors import InvalidError
from policybridge_train.objects.elf import ObjectFile

_SYMBOL_TABLE: Final = 2
_SYMBOL: Final = np.dtype([("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("rest", "V16")])
_LOCAL, _GLOBAL = 0, 1
_SLIM: Final = b"__gnu_lto_slim"
"""What gcc defines in an object of its own intermediate language, whose symbols stand elsewhere."""


@dataclass(frozen=True)
class Symbols:
    """Names that an object file defines, and those that it needs from others (weak ones need nobody)."""

    defined: frozenset[bytes]
    wanted: frozenset[bytes]


def read_symbols(path: Path) -> Symbols | None:
    """Read the symbols of an object file; None where there is no ELF file that can be read."""
    try:
        file = ObjectFile.read(path)
        table = next(section for section in file.sections if section["type"] == _SYMBOL_TABLE)
        names = file.sections[int(table["link"])]
        text = file.data[int(names["offset"]) : int(names["offset"]) + int(names["size"])]
        symbols = np.frombuffer(file.data, _SYMBOL, int(table["size"]) // _SYMBOL.itemsize, int(table["offset"]))
        outer = symbols[(symbols["info"] >> 4) != _LOCAL]
        defined = outer[outer["section"] != 0]
        wanted = outer[(outer["section"] == 0) & ((outer["info"] >> 4) == _GLOBAL)]
        found = Symbols(_names(text, defined["name"]), _names(text, wanted["name"]))
        return None if _SLIM in found.defined else found
    except (OSError, InvalidError, StopIteration, IndexError, ValueError):
        return None


def _names(text: bytes, offsets: Iterable[int]) -> frozenset[bytes]:
    return frozenset(text[int(offset) : text.index(b"\0", int(offset))] for offset in offsets)
