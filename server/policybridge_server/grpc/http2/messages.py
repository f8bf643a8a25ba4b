"""The bytes of a stream that are not handed on yet, cut into gRPC messages (grpc/doc/PROTOCOL-HTTP2.md)."""

import struct
from collections import deque
from itertools import islice
from typing import Final

from policybridge_core.errors import TooLargeError

PREFIX: Final = struct.Struct(">BL")
"""The prefix of each message: whether it is packed, and its length."""

TINY: Final = 256
"""Bytes of a piece that brings a message hardly further."""

_SMALL: Final = 4 << 10
"""Bytes of pieces to join: each alone would need more memory than its data."""


class Assembly:
    """Pieces of messages, in their order.

    Attributes:
        size: bytes received and not taken.

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
        """Drop the taken bytes of the first piece, which would otherwise grow while a part of it is left."""
        first = self._pieces[0]
        if self._at > _SMALL and isinstance(first, bytearray):
            del first[: self._at]
            self._at = 0

    def next(self, limit: int) -> tuple[bool, bytes] | None:
        """Give the next message and whether it is packed; ``None`` before all of it has arrived.

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
