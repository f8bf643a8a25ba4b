"""The bytes of a stream that are not handed on yet, cut into gRPC messages (grpc/doc/PROTOCOL-HTTP2.md)."""

import struct
from collections import deque
from io import BytesIO
from typing import Final

from policybridge_core.errors import TooLargeError

PREFIX: Final = struct.Struct(">BL")
"""The prefix of each message: whether it is packed, and its length."""

TINY: Final = 256
"""Bytes of a piece that brings a message hardly further."""


_JOINED: Final = 1 << 20
"""Bytes of a message that waits in pieces. A buffer that grows takes up to a third more, in holes and in reserve."""


class Assembly:
    """The begun message of a stream, and the bytes after it.

    A message waits in the pieces that have arrived. If it is large, the pieces are written to one buffer, which becomes
    the message without a copy: to join the pieces of 60 MiB at the end would take the loop 40 to 180 ms, and as much
    memory again. A packed message stays in pieces, each of which is freed when it has been unpacked.

    Attributes:
        size: bytes received and not taken.

    """

    __slots__ = ("_buffer", "_length", "_missing", "_packed", "_pieces", "_rest", "size")

    def __init__(self) -> None:
        self.size = 0
        self._rest = bytearray()
        self._pieces: deque[bytes] | None = None
        self._buffer: BytesIO | None = None
        self._length = self._missing = 0
        self._packed = False

    def add(self, piece: bytes) -> None:
        """Take what came."""
        self.size += len(piece)
        if self._pieces is None or not self._missing:
            self._rest += piece
            return
        size = min(self._missing, len(piece))
        self._missing -= size
        self._keep(self._pieces, piece[:size])
        self._rest += piece[size:]

    def _keep(self, pieces: deque[bytes], piece: bytes) -> None:
        if self._buffer is not None:
            self._buffer.write(piece)
            return
        pieces.append(piece)
        if not self._packed and self._length - self._missing > _JOINED:
            self._buffer = BytesIO()
            self._buffer.writelines(pieces)
            pieces.clear()

    def next(self, limit: int) -> bytes | deque[bytes] | None:
        """Give the next message, a packed one in pieces; ``None`` before all of it has arrived.

        Raises:
            TooLargeError: it has more than ``limit`` bytes.

        """
        pieces = self._pieces if self._pieces is not None else self._begin(limit)
        if pieces is None or self._missing:
            return None
        buffer, self._pieces, self._buffer = self._buffer, None, None
        if self._packed:
            self.size -= PREFIX.size + sum(map(len, pieces))
            return pieces
        message = b"".join(pieces) if buffer is None else buffer.getvalue()
        self.size -= PREFIX.size + len(message)
        return message

    def _begin(self, limit: int) -> deque[bytes] | None:
        """Read the next prefix and move what there is of its message; give its pieces, ``None`` without a prefix."""
        rest = self._rest
        if len(rest) < PREFIX.size:
            return None
        packed, length = PREFIX.unpack_from(rest)
        if length > limit:
            raise TooLargeError(f"a message of {length} bytes; at most {limit} are taken")
        end = min(PREFIX.size + length, len(rest))
        self._packed, self._length = bool(packed), length
        with memoryview(rest) as there:
            self._pieces = deque([bytes(there[PREFIX.size : end])])
        del rest[:end]
        self._missing = length - (end - PREFIX.size)
        return self._pieces
