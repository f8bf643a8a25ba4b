"""Columns of a segment as compressed bytes, and back: one column holds one record per decision.

Records of a fixed layout are concatenated. For other layouts the column begins with the sizes of the
records, one uint32 each; then follow the records in the session form of the SerDes `bitstream`.

A column is a zlib stream. If the byte 1 is in front of it, it holds the records in planes: the first bytes of all
records, then their second bytes, and so on. Integers of 64 bits are mostly small, so that their high bytes become long
runs, which compress in less time and to fewer bytes. Ledgers of earlier versions have no planes.
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
"""Bytes of a word."""

_PLANES: Final = b"\1"
"""No zlib stream begins with it: the low four bits of its first byte are 8."""

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
        if count > 1:
            yield _PLANES + isal_zlib.compress(_planes(data, count), _LEVEL)
        else:
            yield isal_zlib.compress(data, _LEVEL)
        return
    compressor = isal_zlib.compressobj(_LEVEL)
    for piece in pieces:
        yield from map(compressor.compress, _steps(memoryview(piece)))
    yield compressor.flush()


def _planes(data: bytes, count: int) -> Buffer:
    """Give ``count`` records in planes.

    If all words of 64 bits are small, their low bytes alone are moved, in a third of the time.
    """
    size = len(data) // count
    if size % _WORD.itemsize or not size:
        return _turned(data, count)
    used = -(-int(np.frombuffer(data, _WORD).max()).bit_length() // 8)
    if used > _FEW:
        return _turned(data, count)
    planes = np.zeros((size // _WORD.itemsize, _WORD.itemsize, count), np.uint8)
    records = np.frombuffer(data, np.uint8).reshape(count, -1, _WORD.itemsize)
    planes[:, :used] = records[:, :, :used].transpose(1, 2, 0)
    return planes.reshape(-1).data


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
        planes = column[:1] == _PLANES
        data = _decompressed(memoryview(column)[len(_PLANES) :] if planes else column)
        if len(data) != count * layout.size:
            raise InvalidError(f"a column of the ledger holds {len(data)} bytes, not {count} times {layout.size}")
        if planes:
            data = _turned(data, layout.size)
        values: Values = np.ndarray(count, layout.dtype, data)
        return values
    codec = VaryingCodec(layout, UNLIMITED)
    return join(layout, [codec.decode(record) for record in _cut(_decompressed(column), count)])


def pack_numbers(numbers: npt.ArrayLike, dtype: str) -> bytes:
    """Pack numbers into a column."""
    return isal_zlib.compress(np.asarray(numbers, dtype).tobytes(), _LEVEL)


def unpack_numbers(column: bytes, dtype: str, count: int) -> npt.NDArray[Any]:
    """Give the numbers of a column.

    Raises:
        InvalidError: there are not ``count`` of them.

    """
    data = _decompressed(column)
    if len(data) != count * np.dtype(dtype).itemsize:
        raise InvalidError(f"a column of the ledger holds {len(data)} bytes, not {count} numbers of {dtype}")
    return np.frombuffer(data, dtype)


def pack_outcomes(contexts: Contexts) -> bytes:
    """Pack numbers by context and name."""
    return isal_zlib.compress(msgspec.json.encode(contexts), _LEVEL)


def unpack_outcomes(packed: bytes) -> dict[str, dict[str, float]]:
    """Give the numbers by context and name.

    Raises:
        InvalidError: they are damaged.

    """
    try:
        return msgspec.json.decode(_decompressed(packed), type=dict[str, dict[str, float]])
    except msgspec.DecodeError as error:
        raise InvalidError(f"outcomes of the ledger are damaged: {error}") from error


def _decompressed(column: Buffer) -> bytes:
    try:
        return zlib.decompress(column)
    except zlib.error as error:
        raise InvalidError(f"a column of the ledger is damaged: {error}") from error


def _cut(data: bytes, count: int) -> list[bytes]:
    start = count * _SIZE.itemsize
    if len(data) < start:
        raise InvalidError(f"a column of the ledger is damaged: it has no room for {count} sizes")
    ends = start + np.cumsum(np.frombuffer(data, _SIZE, count), dtype=np.int64)
    if (int(ends[-1]) if count else start) != len(data):
        raise InvalidError(f"a column of the ledger is damaged: its {count} sizes do not add up")
    return [data[begin:end] for begin, end in pairwise([start, *ends.tolist()])]
