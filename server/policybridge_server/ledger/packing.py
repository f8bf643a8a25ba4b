"""Columns of a segment as compressed bytes, and back: one column holds one record per decision.

Records of a fixed layout are concatenated. For other layouts the column begins with the sizes of the
records, one uint32 each; then follow the records in the session form of the SerDes `bitstream`.

A column is a zlib stream. If the byte 1 is in front of it, it holds the records in planes: the first bytes of all
records, then their second bytes, and so on. If the byte 2 and a number are in front of it, the records are words of 64
bits, and it holds the planes of that number of low bytes alone. The other bytes are 0, because integers are mostly
small. This takes less time and fewer bytes. Ledgers of earlier versions have no planes, or all of them.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt
from isal import isal_zlib

from policybridge_core.errors import InvalidError
from policybridge_serdes import Layout, Values
from policybridge_serdes.bitstream import VaryingCodec
from policybridge_serdes.limits import LARGE, UNLIMITED, Buffer
from policybridge_serdes.values import Row, bytes_of, join

_LEVEL: Final = 1
"""Of ISA-L, which takes a third of the time of zlib's own for the same size."""

_SIZE: Final = np.dtype("<u4")

_WORD: Final = np.dtype("<u8")

_FEW: Final = 3
"""Low bytes of a word that are moved alone; to move more takes longer than to move all."""

_PLANES: Final = b"\1"
"""No zlib stream begins with it: the low four bits of its first byte are 8."""

_LOW_PLANES: Final = b"\2"
"""Likewise; the number of low bytes follows."""

Contexts = Mapping[str, Mapping[str, float]]
"""Numbers by context and name."""


def pack_rows(layout: Layout, rows: Sequence[Row]) -> bytes:
    """Pack ``rows`` into a column."""
    return b"".join(packed_rows(layout, rows))


def packed_rows(layout: Layout, rows: Sequence[Row]) -> Iterator[bytes]:
    """Give the column of ``rows`` in pieces; a column of many bytes is nowhere whole."""
    if layout.fixed:
        return compressed([row if isinstance(row, bytes) else bytes_of(row) for row in rows], len(rows))
    codec = VaryingCodec(layout, UNLIMITED)
    records = [[row] if isinstance(row, bytes) else list(codec.pieces(row)) for row in rows]
    sizes = np.array([sum(map(len, record)) for record in records], _SIZE)
    return compressed([sizes.tobytes(), *chain.from_iterable(records)])


def compressed(pieces: Sequence[Buffer], count: int = 1) -> Iterator[bytes]:
    """Compress ``pieces`` as one column: of ``count`` equal records in planes, or if they are many bytes, in steps."""
    if sum(map(len, pieces)) <= LARGE:
        data = b"".join(pieces)
        yield _in_planes(data, count) if count > 1 else isal_zlib.compress(data, _LEVEL)
        return
    compressor = isal_zlib.compressobj(_LEVEL)
    for piece in pieces:
        yield from map(compressor.compress, _steps(memoryview(piece)))
    yield compressor.flush()


def _in_planes(data: bytes, count: int) -> bytes:
    """Compress ``count`` records in planes."""
    if data and not len(data) // count % _WORD.itemsize:
        words = np.frombuffer(data, _WORD)
        low = max(1, -(-int(words.max()).bit_length() // 8))
        if low <= _FEW:
            planes = words.view(np.uint8).reshape(count, -1, _WORD.itemsize)[:, :, :low].transpose(1, 2, 0)
            return _LOW_PLANES + bytes([low]) + isal_zlib.compress(planes.tobytes(), _LEVEL)
    return _PLANES + isal_zlib.compress(_turned(data, count), _LEVEL)


def _turned(data: bytes, lines: int) -> bytes:
    """Turn a table of bytes with this many lines: records into planes, and planes into records."""
    return np.frombuffer(data, np.uint8).reshape(lines, -1).T.tobytes() if data else data


def _steps(piece: memoryview) -> Iterator[memoryview]:
    return (piece[start : start + LARGE] for start in range(0, len(piece), LARGE))


def unpack_rows(layout: Layout, column: bytes, count: int) -> Values:
    """Give the ``count`` records of a column; they are read-only if the layout is fixed.

    Raises:
        InvalidError: the column does not hold ``count`` records.

    """
    if layout.fixed:
        data = _records(column, count, layout.size)
        values: Values = np.ndarray(count, layout.dtype, data)
        return values
    codec = VaryingCodec(layout, UNLIMITED)
    return join(layout, [codec.decode(record) for record in _cut(column, count)])


def _records(column: bytes, count: int, size: int) -> bytes:
    kind = column[:1]
    if kind == _LOW_PLANES:
        return _of_low_planes(column, count, size)
    data = _decompressed(memoryview(column)[len(_PLANES) :] if kind == _PLANES else column, count, size)
    return _turned(data, size) if kind == _PLANES else data


def _of_low_planes(column: bytes, count: int, size: int) -> bytes:
    words, rest = divmod(size, _WORD.itemsize)
    low = column[1] if len(column) > 1 else 0
    if rest or not 0 < low <= _WORD.itemsize:
        raise InvalidError(f"a column of the ledger is damaged: it has no {low} bytes of each word of {size} bytes")
    data = _decompressed(memoryview(column)[2:], count, words * low)
    records = np.zeros((count, words, _WORD.itemsize), np.uint8)
    records[:, :, :low] = np.frombuffer(data, np.uint8).reshape(words, low, count).transpose(2, 0, 1)
    return records.tobytes()


def pack_numbers(numbers: npt.ArrayLike, dtype: str) -> bytes:
    """Pack numbers into a column."""
    return isal_zlib.compress(np.asarray(numbers, dtype).tobytes(), _LEVEL)


def unpack_numbers(column: bytes, dtype: str, count: int) -> npt.NDArray[Any]:
    """Give the numbers of a column.

    Raises:
        InvalidError: there are not ``count`` of them.

    """
    return np.frombuffer(_decompressed(column, count, np.dtype(dtype).itemsize), dtype)


def pack_outcomes(contexts: Contexts) -> bytes:
    """Pack numbers by context and name."""
    return isal_zlib.compress(msgspec.json.encode(contexts), _LEVEL)


def unpack_outcomes(packed: bytes) -> dict[str, dict[str, float]]:
    """Give the numbers by context and name.

    Raises:
        InvalidError: they are damaged.

    """
    try:
        return msgspec.json.decode(_all_decompressed(packed), type=dict[str, dict[str, float]])
    except msgspec.DecodeError as error:
        raise InvalidError(f"outcomes of the ledger are damaged: {error}") from error


def _decompressed(column: Buffer, count: int, size: int) -> bytes:
    """Give the bytes of a column that must hold ``count`` times ``size``; a damaged one takes no more memory."""
    unpacker = zlib.decompressobj()
    # A byte more: with it the end of the stream, which has the checksum, is read.
    data = _next(unpacker, column, count * size + 1)
    if len(data) > count * size:
        raise InvalidError(f"a column of the ledger holds more bytes than {count} times {size}")
    if len(data) < count * size:
        raise InvalidError(f"a column of the ledger holds {len(data)} bytes, not {count} times {size}")
    _check_end(unpacker)
    return data


def _cut(column: Buffer, count: int) -> list[bytes]:
    """Give the records of a column, which their sizes precede; a damaged one takes no more memory than these say."""
    unpacker, start = zlib.decompressobj(), count * _SIZE.itemsize
    sizes = _next(unpacker, column, start) if start else b""
    if len(sizes) < start:
        raise InvalidError(f"a column of the ledger is damaged: it has no room for {count} sizes")
    ends = [0, *np.cumsum(np.frombuffer(sizes, _SIZE), dtype=np.int64).tolist()]
    data = _next(unpacker, unpacker.unconsumed_tail if start else column, ends[-1] + 1)
    if len(data) != ends[-1]:
        raise InvalidError(f"a column of the ledger is damaged: its {count} sizes do not add up")
    _check_end(unpacker)
    return [data[begin:end] for begin, end in pairwise(ends)]


def _next(unpacker: "zlib._Decompress", packed: Buffer, most: int) -> bytes:
    """Give the next bytes of a column: ``most`` of them, or all that there are."""
    try:
        return unpacker.decompress(packed, most)
    except zlib.error as error:
        raise InvalidError(f"a column of the ledger is damaged: {error}") from error


def _check_end(unpacker: "zlib._Decompress") -> None:
    if not unpacker.eof:
        raise InvalidError("a column of the ledger is damaged: it has no end")


def _all_decompressed(column: Buffer) -> bytes:
    try:
        return zlib.decompress(column)
    except zlib.error as error:
        raise InvalidError(f"a column of the ledger is damaged: {error}") from error
