"""Blocks of headers: in one HEADERS frame, or continued in others (RFC 9113, section 6.10)."""

from typing import Final

from policybridge_server.grpc.http2.frames import Code, Flag, Http2Error, StreamError, priority_of, read_word, unpadded
from policybridge_server.grpc.http2.headers import MAX_BLOCK

_SHAPED: Final = int(Flag.PADDED | Flag.PRIORITY)
_END_HEADERS: Final = int(Flag.END_HEADERS)


Block = tuple[int, int, bytes, bytes]
"""A whole block: the flags of its HEADERS frame, its stream, the priority's bytes, and the compressed headers."""


class HeaderBlocks:
    """Puts the blocks of one connection together.

    Attributes:
        begun: the unfinished block; no other frame may come before its end.

    """

    __slots__ = ("begun",)

    def __init__(self) -> None:
        self.begun: Block | None = None

    def begin(self, flags: int, number: int, payload: bytes) -> Block | None:
        """Take a HEADERS frame; give the block if it is whole.

        Raises:
            Http2Error: it is against the rules, or too large.

        """
        if number % 2 == 0:
            raise Http2Error(Code.PROTOCOL_ERROR, f"headers on stream {number}")
        priority = b""
        if flags & _SHAPED:
            priority, payload = priority_of(flags, payload), unpadded(flags & _SHAPED, payload)
        if len(payload) > MAX_BLOCK:
            raise Http2Error(Code.FRAME_SIZE_ERROR, f"headers of more than {MAX_BLOCK} bytes")
        block = (flags, number, priority, payload)
        if flags & _END_HEADERS:
            return block
        self.begun = block
        return None

    def go_on(self, flags: int, number: int, payload: bytes) -> Block | None:
        """Take a CONTINUATION frame; give the block if it is whole.

        Raises:
            Http2Error: nothing is continued on this stream, or the block is too large.

        """
        if self.begun is None or self.begun[1] != number:
            raise Http2Error(Code.PROTOCOL_ERROR, "a CONTINUATION of nothing")
        first, _, priority, data = self.begun
        if len(data) + len(payload) > MAX_BLOCK:
            raise Http2Error(Code.ENHANCE_YOUR_CALM, f"headers of more than {MAX_BLOCK} bytes")
        block = (first, number, priority, data + payload)
        whole = bool(flags & _END_HEADERS)
        self.begun = None if whole else block
        return block if whole else None


def check_priority(number: int, priority: bytes) -> None:
    """Check the priority of a stream, which is not used otherwise.

    Raises:
        StreamError: the stream depends on itself.

    """
    if read_word(priority) == number:
        raise StreamError(Code.PROTOCOL_ERROR, "a stream that depends on itself")
