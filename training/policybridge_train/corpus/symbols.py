"""The symbols that an object defines and needs: they tell which members of an archive a linker takes."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from policybridge_core.errors import InvalidError
from policybridge_train.objects.elf import ObjectFile

_SLIM: Final = "__gnu_lto_slim"
"""What gcc defines in an object of its own intermediate language, whose symbols stand elsewhere."""


@dataclass(frozen=True)
class Symbols:
    """Names that an object file defines, and those that it needs from others (weak ones need nobody)."""

    defined: frozenset[str]
    wanted: frozenset[str]


def read_symbols(path: Path) -> Symbols | None:
    """Read the symbols of an object file; None where there is no ELF file with symbols that can be read."""
    try:
        file = ObjectFile.read(path)
        found = Symbols(frozenset(file.globals()), frozenset(file.wanted))
        return None if _SLIM in found.defined or not file.has_symbols else found
    except (OSError, InvalidError):
        return None
