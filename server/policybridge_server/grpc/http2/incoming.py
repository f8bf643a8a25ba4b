"""Cutting a connection's received bytes into frames (RFC 9113, section 4.1)."""

from collections.abc import Callable

from policybridge_server.grpc.http2.frames import HEAD, MAX_WINDOW, Code, Http2Error
from policybridge_server.grpc.http2.greeting import FRAME
from policybridge_server.grpc.http2.turn import Turn


class Incoming:
    """Passes on whole frames until the turn ends; keeps the rest.

    Args:
        turn: the connection's turn.
        greet: takes the bytes before the first frame; returns their number.
        take: takes a frame: its type, flags, stream and payload.

    Attributes:
        greeted: whether the bytes before the first frame are taken.
        behind: whether whole frames are left for a later turn.

    """

    __slots__ = ("_at", "_greet", "_missing", "_rest", "_take", "_turn", "behind", "greeted")

    def __init__(self, turn: Turn, greet: Callable[[bytes], int], take: Callable[[int, int, int, bytes], None]) -> None:
        self.greeted = self.behind = False
        self._rest: bytes | bytearray = bytearray()
        # While frames are left they stay in place: a connection may have a hundred turns for one read.
        self._at = self._missing = 0
        self._turn = turn
        self._greet = greet
        self._take = take

    def clear(self) -> None:
        """Drop the kept bytes."""
        self.behind, self._missing, self._rest, self._at = False, 0, bytearray(), 0

    def feed(self, data: bytes) -> None:
        """Take bytes; while frames are left, only those, and no bytes.

        Raises:
            Http2Error: they are against the rules.

        """
        if self._missing > len(data):
            self._rest += data
            self._missing -= len(data)
            return
        data, start = self._joined(data)
        self._missing, self.behind = 0, False
        if not self.greeted:
            start = self._greet(data)
        while self.greeted and len(data) - start >= HEAD.size:
            high, low, kind, flags, number = HEAD.unpack_from(data, start)
            size = high << 8 | low
            if size > FRAME:
                raise Http2Error(Code.FRAME_SIZE_ERROR, f"a frame of {size} bytes; at most {FRAME} are taken")
            end = start + HEAD.size + size
            if end > len(data):
                self._missing = end - len(data)
                break
            self._take(kind, flags, number & MAX_WINDOW, data[start + HEAD.size : end])
            start = end
            if start < len(data) and (self._turn.unfinished or self._turn.is_tired()):
                self.behind = True
                break
        self._keep(data, start)

    def _joined(self, data: bytes) -> tuple[bytes, int]:
        """Give the kept bytes with ``data`` behind them, and where the frames begin that are left."""
        if self.behind:
            return bytes(self._rest), self._at
        return b"".join((self._rest, data)) if self._rest else data, 0

    def _keep(self, data: bytes, start: int) -> None:
        if self.behind:
            self._rest, self._at = data, start
        elif start < len(data):
            self._rest = bytearray(memoryview(data)[start:])
        elif self._rest:
            self._rest = bytearray()
