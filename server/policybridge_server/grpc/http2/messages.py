"""The bytes of a stream that are not handed on yet, cut into gRPC messages (grpc/doc/PROTOCOL-HTTP2.md)."""

import struct
import zlib
from collections import deque
from itertools import islice
from typing import Final

from policybridge_core.errors import InvalidError, TooLargeError, UnsupportedError

PREFIX: Final = struct.Struct(">BL")
"""What stands before each message: whether it is packed, and its length."""

TINY: Final = 256
"""Bytes of a piece that brings a message hardly further."""

_SMALL: Final = 4 << 10
"""Bytes of pieces that are put together: each alone would cost more memory than it holds."""

_WINDOW_BITS: Final = {"gzip": 31, "deflate": 15}
_IN: Final = 64 << 10
_OUT: Final = 256 << 10


class Assembly:
    """Pieces of messages, in their order.

    Attributes:
        size: bytes that are there.

    """

    __slots__ = ("_at", "_pieces", "_wanted", "size")

    def __init__(self) -> None:
        self.size = 0
        self._pieces: deque[bytes | bytearray] = deque()
        self._at = 0
        self._wanted = PREFIX.size

    def add(self, piece: bytes) -> None:
        """Take what came."""
        self.size += len(piece)
        if len(piece) >= _SMALL:
            self._pieces.append(piece)
        elif self._pieces and isinstance(self._pieces[-1], bytearray):
            self._trim()
            self._pieces[-1] += piece
        else:
            self._pieces.append(bytearray(piece))

    def _trim(self) -> None:
        """Forget what was taken of the first piece, which would otherwise grow as long as something is left of it."""
        first = self._pieces[0]
        if self._at > _SMALL and isinstance(first, bytearray):
            del first[: self._at]
            self._at = 0

    def next(self, limit: int) -> tuple[bool, bytes] | None:
        """Give the next message and whether it is packed; ``None`` before all of it is there.

        Raises:
            TooLargeError: it has more than ``limit`` bytes.

        """
        if self.size < self._wanted:
            return None
        packed, length = PREFIX.unpack(self._peek(PREFIX.size))
        if length > limit:
            raise TooLargeError(f"a message of {length} bytes; at most {limit} are taken")
        self._wanted = PREFIX.size + length
        if self.size < self._wanted:
            return None
        self._wanted = PREFIX.size
        self._skip(PREFIX.size)
        return bool(packed), self._take(length)

    def _peek(self, size: int) -> bytes:
        first = bytes(self._pieces[0][self._at : self._at + size])
        for piece in islice(self._pieces, 1, None):
            if len(first) == size:
                break
            first += piece[: size - len(first)]
        return first

    def _skip(self, size: int) -> None:
        self._at += size
        self.size -= size
        if self._at == len(self._pieces[0]):
            self._pieces.popleft()
            self._at = 0

    def _take(self, size: int) -> bytes:
        if not size:
            return b""
        if len(self._pieces[0]) - self._at >= size:
            data = bytes(memoryview(self._pieces[0])[self._at : self._at + size])
            self._skip(size)
            return data
        parts = []
        while size:
            part = memoryview(self._pieces[0])[self._at : self._at + size]
            parts.append(part)
            size -= len(part)
            self._skip(len(part))
        return b"".join(parts)


class Unpacking:
    """Unpacks one message step by step, so that a large one does not keep others waiting.

    Args:
        encoding: ``grpc-encoding`` of the call.
        message: packed.
        limit: largest message, unpacked.

    Raises:
        UnsupportedError: the encoding is unknown.

    """

    __slots__ = ("_at", "_encoding", "_limit", "_packed", "_parts", "_rest", "_size", "_unpacker")

    def __init__(self, encoding: str, message: bytes, limit: int) -> None:
        if encoding not in _WINDOW_BITS:
            raise UnsupportedError(f"messages in grpc-encoding {encoding[:100]!r}; taken are gzip and deflate")
        self._unpacker = zlib.decompressobj(_WINDOW_BITS[encoding])
        self._encoding = encoding
        self._packed = message
        self._limit = limit
        self._at = 0
        self._rest = b""
        self._parts: list[bytes] = []
        self._size = 0

    def step(self) -> int:
        """Unpack at most 256 KiB more; give the number of bytes.

        Raises:
            InvalidError: the message is not of its encoding, is cut off, or something follows it.
            TooLargeError: it has more bytes than the limit.

        """
        if not self._rest:
            self._rest = self._packed[self._at : self._at + _IN]
            self._at += len(self._rest)
        ended = not self._rest
        try:
            part = self._unpacker.decompress(self._rest, _OUT)
        except zlib.error as error:
            raise InvalidError(f"a message is no {self._encoding}: {error}") from error
        self._rest = self._unpacker.unconsumed_tail
        self._parts.append(part)
        self._size += len(part)
        self._check(ended and not part)
        return len(part)

    def _check(self, ended: bool) -> None:
        if self._size > self._limit:
            raise TooLargeError(f"a message of more than {self._limit} bytes, unpacked")
        if ended and not self._unpacker.eof:
            raise InvalidError(f"a message is no whole {self._encoding}: it is cut off")
        if self._unpacker.eof and (self._unpacker.unused_data or self._at < len(self._packed)):
            raise InvalidError(f"a message is no {self._encoding} alone: something follows its end")

    @property
    def done(self) -> bool:
        """Whether all is unpacked."""
        return self._unpacker.eof

    def message(self) -> bytes:
        """Give the message, once it is all unpacked."""
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
