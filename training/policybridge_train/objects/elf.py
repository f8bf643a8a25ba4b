"""ELF files of 64 or 32 bits, little-endian, as compilers and linkers write them: sections, and the sizes of functions.

Only what scores and credit need, by numpy, because a search reads thousands of objects (System V ABI, chapter 4).
"""

from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError
from policybridge_train.objects.classes import CLASSES

_MAGIC: Final = b"\x7fELF"
_LITTLE_ENDIAN: Final = 1
_IDENTITY: Final = 16
_EXTENDED: Final = 0xFFFF

_SYMBOL_TABLE, _NO_BITS, _DYNAMIC_SYMBOLS = 2, 8, 11
_WRITE, _ALLOCATED, _EXECUTABLE = 1, 2, 4
_FUNCTION: Final = 2
_WITH_ADDEND: Final = 4
"""The type of a section of relocations that have addends, as the machines of 64 bits write them."""

_PADDING: Final = ".relro_padding"
"""LLD's section without content up to the end of a page: it grows where code shrinks."""

_LOCAL, _GLOBAL, _WEAK = 0, 1, 2
_SHOWN: Final = (0, 3)
"""The visibilities, default and protected, of symbols that a shared library shows to others."""

Table = npt.NDArray[Any]


class Location(NamedTuple):
    """A byte of an object.

    Attributes:
        section: the index of its section.
        offset: bytes from the start of the section.

    """

    section: int
    offset: int


class ObjectFile:
    """An object file in memory.

    Args:
        data: the file.
        path: its path, for errors.

    Attributes:
        machine: the number of its machine: 62 is x86-64, 183 AArch64, 243 RISC-V, 40 ARM.
        sections: the section headers: a record array of ``name``, ``type``, ``flags``, ``offset``, ``size``, ….
        section_names: their names, in the same order.
        text: bytes that are loaded and not written: code, constants, unwind tables. It is the ``text`` of llvm-size.
        exec: bytes of code.
        loaded: bytes of each section that a program has in memory, from the file or (.bss) as zeroes, by name; sections
            of one name (COMDATs) are summed, and what only fills a page is left out.

    Raises:
        InvalidError: it is no ELF file, not little-endian, or cut off.

    """

    def __init__(self, data: bytes, path: str = "") -> None:
        if data[:4] != _MAGIC or len(data) < _IDENTITY or data[4] not in CLASSES or data[5] != _LITTLE_ENDIAN:
            raise InvalidError(f"{path} is no ELF file of 64 or 32 bits, little-endian")
        self._class = CLASSES[data[4]]
        if len(data) < self._class.header:
            raise InvalidError(f"{path} is cut off: it ends within its header")
        self.data = data
        self.path = path
        self.machine = int.from_bytes(data[18:20], "little")
        self.sections = self._read_sections()
        self.section_names = self._read_section_names()
        sizes, flags = self.sections["size"], self.sections["flags"]
        is_loaded = (flags & _ALLOCATED).astype(bool)
        is_text = is_loaded & ~(flags & _WRITE).astype(bool) & (self.sections["type"] != _NO_BITS)
        self.text = int(sizes[is_text].sum())
        self.exec = int(sizes[(flags & _EXECUTABLE).astype(bool)].sum())
        self.loaded: dict[str, int] = {}
        for index in np.flatnonzero(is_loaded):
            name = self.section_names[index]
            if name == _PADDING:
                continue
            self.loaded[name] = self.loaded.get(name, 0) + int(sizes[index])

    @classmethod
    def read(cls, path: Path) -> "ObjectFile":
        """Read an object file.

        Raises:
            InvalidError: it is no ELF file, not little-endian, or cut off.

        """
        return cls(path.read_bytes(), str(path))

    def _read_sections(self) -> Table:
        known = self._class
        offset = int.from_bytes(self.data[known.place : known.place + known.word], "little")
        count = int.from_bytes(self.data[known.count : known.count + 2], "little")
        if not count and offset:
            # Beyond 65,279 sections, the number stands in the first one's size.
            count = int(self._table(known.section, offset, 1)[0]["size"])
        return self._table(known.section, offset, count)

    def _read_section_names(self) -> list[str]:
        if not len(self.sections):
            return []
        place = self._class.count + 2
        index = int.from_bytes(self.data[place : place + 2], "little")
        # A number that does not fit stands in the first section's link.
        names = self._names(int(self.sections[0]["link"]) if index == _EXTENDED else index)
        return [_text(names, start) for start in self.sections["name"].tolist()]

    @cached_property
    def functions(self) -> dict[str, int]:
        """The size of each function, by its name without aliases; names are bytes that ``surrogateescape`` keeps."""
        return {name: int(symbol["size"]) for name, symbol in self._own_functions}

    @cached_property
    def _own_functions(self) -> Collection[tuple[str, Any]]:
        """The names and symbols of functions, without aliases.

        An alias has the bytes of its function. LLVM writes its symbol behind the function's, but that of a weak alias
        behind the first call of it.
        """
        found: dict[tuple[int, int, int], tuple[str, Any]] = {}
        for name, symbol in self._symbols(_is_function):
            place = int(symbol["section"]), int(symbol["value"]), int(symbol["size"])
            if place not in found or (_is_weak(found[place][1]) and not _is_weak(symbol)):
                found[place] = name, symbol
        return found.values()

    @property
    def weak(self) -> list[str]:
        """The names of functions of which a linker keeps one copy, where several objects have them."""
        return [name for name, _ in self._symbols(_is_weak_function)]

    @property
    def has_symbols(self) -> bool:
        """Whether it has a table of symbols."""
        return bool((self.sections["type"] == _SYMBOL_TABLE).any())

    @property
    def wanted(self) -> list[str]:
        """The names that it needs from other objects; weak ones are not needed."""
        return [name for name, _ in self._symbols(_is_strong, defined=False)]

    def globals(self, *, exported: bool = False) -> list[str]:
        """Give the names that other objects can refer to and this one defines, weak ones too, in their order.

        Args:
            exported: only those that a shared library shows to others: not the hidden ones.

        """
        return [name for name, _ in self._symbols(_is_exported if exported else _is_global)]

    @property
    def shown(self) -> list[str]:
        """The names that a linked file defines for other files, once each."""
        return list(dict.fromkeys(name for name, _ in self._symbols(_is_global, kind=_DYNAMIC_SYMBOLS)))

    def _symbols(
        self, wanted: Callable[[Table], Table], *, defined: bool = True, kind: int = _SYMBOL_TABLE
    ) -> Iterator[tuple[str, Any]]:
        """Give the wanted symbols that are defined, or that are not, with their names."""
        for table in self.sections[self.sections["type"] == kind]:
            symbols = self._entries(table, self._class.symbol)
            names = self._names(int(table["link"]))
            for symbol in symbols[((symbols["section"] != 0) == defined) & wanted(symbols)]:
                yield _text(names, int(symbol["name"])), symbol

    def is_code(self, section: int) -> bool:
        """Tell whether a section holds code; the numbers of symbols in no section are none."""
        return section < len(self.sections) and bool(self.sections[section]["flags"] & _EXECUTABLE)

    def function_starts(self) -> dict[Location, str]:
        """Give the name of each function, by its first byte."""
        return {Location(int(symbol["section"]), int(symbol["value"])): name for name, symbol in self._own_functions}

    def relocations(self, section: int) -> tuple[Table, list[Location]]:
        """Give the offsets of a section's relocations, ascending, and the location that each names."""
        of_it = (self.sections["type"] == _WITH_ADDEND) & (self.sections["info"] == section)
        for table in self.sections[of_it]:
            rows = self._entries(table, self._class.relocation)
            rows = rows[np.argsort(rows["offset"], kind="stable")]
            symbols = self._symbol_table(int(table["link"]))
            numbers = np.minimum(rows["symbol"].astype(np.uint64) >> np.uint64(self._class.shift), len(symbols) - 1)
            named = symbols[numbers.astype(np.int64)]
            offsets = named["value"].astype(np.int64) + rows["addend"]
            return rows["offset"], [*map(Location, named["section"].tolist(), offsets.tolist())]
        return np.zeros(0, np.uint64), []

    def _symbol_table(self, section: int) -> Table:
        if section >= len(self.sections):
            raise InvalidError(f"{self.path} names section {section}, and has {len(self.sections)}")
        return self._entries(self.sections[section], self._class.symbol)

    def _entries(self, section: Any, kind: "np.dtype[Any]") -> Table:
        return self._table(kind, int(section["offset"]), int(section["size"]) // kind.itemsize)

    def content(self, wanted: str) -> bytes:
        """Give the bytes of the first section of a name; none where there is no such section.

        Raises:
            InvalidError: the section ends behind the file.

        """
        for index, name in enumerate(self.section_names):
            if name == wanted and self.sections[index]["type"] != _NO_BITS:
                return self.section_content(index)
        return b""

    def section_content(self, index: int) -> bytes:
        """Give the bytes of a section.

        Raises:
            InvalidError: the section ends behind the file.

        """
        section = self.sections[index]
        return self._table(np.dtype("V1"), int(section["offset"]), int(section["size"])).tobytes()

    def _names(self, index: int) -> bytes:
        if index >= len(self.sections):
            raise InvalidError(f"{self.path} names section {index}, and has {len(self.sections)}")
        section = self.sections[index]
        return self.data[int(section["offset"]) : int(section["offset"]) + int(section["size"])]

    def _table(self, kind: "np.dtype[Any]", offset: int, count: int) -> Table:
        """Read a table of ``count`` entries.

        Raises:
            InvalidError: it ends behind the file.

        """
        if offset + count * kind.itemsize > len(self.data):
            raise InvalidError(f"{self.path} is cut off: a table ends behind the file")
        return np.frombuffer(self.data, kind, count, offset)


def _is_function(symbols: Table) -> Table:
    return (symbols["info"] & 15) == _FUNCTION  # type: ignore[no-any-return]


def _is_weak_function(symbols: Table) -> Table:
    return _is_function(symbols) & _is_weak(symbols)


def _is_weak(symbols: Table) -> Table:
    return (symbols["info"] >> 4) == _WEAK  # type: ignore[no-any-return]


def _is_global(symbols: Table) -> Table:
    return (symbols["info"] >> 4) != _LOCAL  # type: ignore[no-any-return]


def _is_strong(symbols: Table) -> Table:
    return (symbols["info"] >> 4) == _GLOBAL  # type: ignore[no-any-return]


def _is_exported(symbols: Table) -> Table:
    return _is_global(symbols) & np.isin(symbols["other"] & 3, _SHOWN)


def _text(names: bytes, start: int) -> str:
    end = names.find(b"\0", start)
    # A name without an end is that of a broken file; it goes to the end of the table.
    return names[start : end if end >= 0 else len(names)].decode(errors="surrogateescape")
