"""The bytes of a stream that are not handed on yet, cut into gRPC messages (grpc/doc/PROTOCOL-HTTP2.md)."""

import struct
from io import BytesIO
from typing import Final

from policybridge_core.errors import TooLargeError

PREFIX: Final = struct.Struct(">BL")
"""The prefix of each message: whether it is packed, and its length."""

TINY: Final = 256
"""Bytes of a piece that brings a message hardly further."""


class Assembly:
    """The begun message of a stream, and the bytes after it.

    A message grows piece by piece in one buffer, which becomes the message without a copy: to join the pieces of
    60 MiB at the end would take the loop 40 to 180 ms, and as much memory again.

    Attributes:
        size: bytes received and not taken.

    """

    __slots__ = ("_begun", "_missing", "_packed", "_rest", "size")

    def __init__(self) -> None:
        self.size = 0
        self._rest = bytearray()
        self._begun: BytesIO | None = None
        self._missing = 0
        self._packed = False

    def add(self, piece: bytes) -> None:
        """Take what came."""
        self.size += len(piece)
        if self._begun is None or not self._missing:
            self._rest += piece
            return
        size = min(self._missing, len(piece))
        self._begun.write(piece if size == len(piece) else piece[:size])
        self._missing -= size
        self._rest += piece[size:]

    def next(self, limit: int) -> tuple[bool, bytes] | None:
        """Give the next message and whether it is packed; ``None`` before all of it has arrived.

        Raises:
            TooLargeError: it has more than ``limit`` bytes.

        """
        begun = self._begun or self._begin(limit)
        if begun is None or self._missing:
            return None
        message = begun.getvalue()
        self._begun = None
        self.size -= PREFIX.size + len(message)
        return self._packed, message

    def _begin(self, limit: int) -> BytesIO | None:
        """Read the next prefix and move what there is of its message; give the message, ``None`` without a prefix."""
        rest = self._rest
        if len(rest) < PREFIX.size:
            return None
        packed, length = PREFIX.unpack_from(rest)
        if length > limit:
            raise TooLargeError(f"a message of {length} bytes; at most {limit} are taken")
        end = min(PREFIX.size + length, len(rest))
        self._begun, self._packed = BytesIO(), bool(packed)
        with memoryview(rest) as there:
            self._begun.write(there[PREFIX.size : end])
        del rest[:end]
        self._missing = length - (end - PREFIX.size)
        return self._begun
