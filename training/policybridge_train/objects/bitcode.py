"""The symbols of LLVM's bitcode, by the table that clang adds for linkers (llvm/Object/IRSymtab.h, from LLVM 5 on)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from policybridge_core.errors import InvalidError

MAGIC: Final = b"BC\xc0\xde"

_NAMES, _SYMBOLS = 23, 25
"""The blocks of all names, and of the table; each is one blob."""
_ENTER, _DEFINE, _FIRST_DEFINED = 1, 2, 4
_LITERAL, _BLOB = 1, 5
_MOST_BITS: Final = 64
_TABLE: Final = 7
"""The word of the table's header that has the place of the symbols, with their number behind it."""
_SYMBOL_WORDS: Final = 6
_FLAGS: Final = 5
_UNDEFINED, _WEAK, _GLOBAL, _FORMAT = 1 << 3, 1 << 4, 1 << 10, 1 << 11


@dataclass(frozen=True)
class BitcodeSymbols:
    """The names that a file of bitcode defines for others, and those that it needs; weak ones need nobody."""

    defined: frozenset[str]
    wanted: frozenset[str]

    @classmethod
    def of(cls, data: bytes) -> "BitcodeSymbols":
        """Read a file.

        Raises:
            InvalidError: it is no bitcode with a table, or malformed.

        """
        if not data.startswith(MAGIC):
            raise InvalidError("it is no bitcode")
        blobs = dict(_blobs(data))
        if _SYMBOLS not in blobs or _NAMES not in blobs:
            raise InvalidError("it has no table of symbols")
        rows, names = _rows(blobs[_SYMBOLS]), blobs[_NAMES]
        found = [(_name(names, row), int(row[_FLAGS])) for row in rows if int(row[_FLAGS]) & _GLOBAL]
        found = [(name, flags) for name, flags in found if not flags & _FORMAT]
        return cls(
            frozenset(name for name, flags in found if not flags & _UNDEFINED),
            frozenset(name for name, flags in found if flags & _UNDEFINED and not flags & _WEAK),
        )


def _rows(table: bytes) -> npt.NDArray[np.uint32]:
    words = np.frombuffer(table, "<u4", count=len(table) // 4)
    if len(words) <= _TABLE + 1:
        raise InvalidError("its table of symbols is cut off")
    place, count = int(words[_TABLE]), int(words[_TABLE + 1])
    if place % 4 or place + 4 * _SYMBOL_WORDS * count > len(table):
        raise InvalidError("its table of symbols is cut off")
    return words[place // 4 :][: _SYMBOL_WORDS * count].reshape(count, _SYMBOL_WORDS)


def _name(names: bytes, row: npt.NDArray[np.uint32]) -> str:
    place, size = int(row[0]), int(row[1])
    if place + size > len(names):
        raise InvalidError("a name is not within its names")
    return names[place : place + size].decode(errors="surrogateescape")


def _blobs(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Give the kind and the blob of each block at the top that has one."""
    bits = _Bits(data, 8 * len(MAGIC))
    while bits.rest >= 64:
        if bits.take(2) != _ENTER:
            raise InvalidError("there is no block where one begins")
        kind, width = bits.variable(8), bits.variable(4)
        bits.align()
        end = bits.place + 32 * bits.take(32) + 32
        if kind in (_NAMES, _SYMBOLS):
            yield kind, _blob(bits, width)
        bits.place = end


def _blob(bits: "_Bits", width: int) -> bytes:
    """Read a block that defines how its one record is written, a literal code and a blob, and has that."""
    if bits.take(width) != _DEFINE or bits.variable(5) != 2 or bits.take(1) != _LITERAL:
        raise InvalidError("its symbols are written in an unknown way")
    bits.variable(8)
    if bits.take(1) == _LITERAL or bits.take(3) != _BLOB or bits.take(width) != _FIRST_DEFINED:
        raise InvalidError("its symbols are written in an unknown way")
    size = bits.variable(6)
    bits.align()
    return bits.bytes(size)


@dataclass
class _Bits:
    """Bits from the lowest of each byte on (LLVM's bitstream)."""

    data: bytes
    place: int

    @property
    def rest(self) -> int:
        return 8 * len(self.data) - self.place

    def take(self, count: int) -> int:
        if count > self.rest:
            raise InvalidError("it is cut off")
        first = self.place // 8
        word = int.from_bytes(self.data[first : first + count // 8 + 2], "little")
        self.place += count
        return word >> (self.place - count) % 8 & (1 << count) - 1

    def variable(self, width: int) -> int:
        """Read a number in pieces, of whose bits the highest says that another follows."""
        value, shift, more = 0, 0, 1 << width - 1
        while True:
            piece = self.take(width)
            value |= (piece & more - 1) << shift
            if not piece & more:
                return value
            shift += width - 1
            if shift > _MOST_BITS:
                raise InvalidError("a number is too large")

    def align(self) -> None:
        """Go on to the next 32 bits."""
        self.place = -(-self.place // 32) * 32

    def bytes(self, size: int) -> bytes:
        if 8 * size > self.rest:
            raise InvalidError("it is cut off")
        first = self.place // 8
        return self.data[first : first + size]
