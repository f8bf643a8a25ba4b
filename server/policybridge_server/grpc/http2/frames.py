"""HTTP/2 frames (RFC 9113, sections 4 and 6), as far as gRPC has use for them."""

import struct
from enum import IntEnum
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

HEAD: Final = struct.Struct(">HBBBL")
"""Length (in two parts), type, flags, stream."""

MAX_WINDOW: Final = 2**31 - 1
DEFAULT_WINDOW: Final = 65_535
DEFAULT_FRAME: Final = 16_384

_WORD: Final = struct.Struct(">L")
_SETTING: Final = struct.Struct(">HL")


class Kind(IntEnum):
    """Frame types. Others are ignored, as the RFC demands."""

    DATA = 0
    HEADERS = 1
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Flag(IntEnum):
    """Frame flags; ACK is of SETTINGS and PING."""

    ACK = 1
    END_STREAM = 1
    END_HEADERS = 4
    PADDED = 8
    PRIORITY = 32


class Setting(IntEnum):
    """The settings that we read or send."""

    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class Code(IntEnum):
    """Error codes."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class Http2Error(Exception):
    """The peer broke the protocol; the connection ends with this code."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


def frame(kind: int, flags: int, stream: int, payload: bytes | memoryview = b"") -> bytes:
    """Write one frame."""
    size = len(payload)
    return HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream) + payload


def settings_frame(values: dict[Setting, int]) -> bytes:
    """Write our settings."""
    return frame(Kind.SETTINGS, 0, 0, b"".join(_SETTING.pack(*item) for item in values.items()))


def read_settings(payload: bytes) -> dict[int, int]:
    """Read the peer's settings.

    Raises:
        Http2Error: they are cut off.

    """
    if len(payload) % _SETTING.size:
        raise Http2Error(Code.FRAME_SIZE_ERROR, f"SETTINGS of {len(payload)} bytes")
    return dict(_SETTING.iter_unpack(payload))


def window_frame(stream: int, more: int) -> bytes:
    """Let the peer send ``more`` bytes."""
    return frame(Kind.WINDOW_UPDATE, 0, stream, _WORD.pack(more))


def reset_frame(stream: int, code: Code) -> bytes:
    """End one stream."""
    return frame(Kind.RST_STREAM, 0, stream, _WORD.pack(code))


def goaway_frame(last: int, code: Code, message: str = "") -> bytes:
    """End the connection after the stream ``last``."""
    return frame(Kind.GOAWAY, 0, 0, _WORD.pack(last) + _WORD.pack(code) + message.encode())


def read_word(payload: bytes) -> int:
    """Read the 31 bits of a WINDOW_UPDATE or RST_STREAM.

    Raises:
        Http2Error: it has another size.

    """
    if len(payload) != _WORD.size:
        raise Http2Error(Code.FRAME_SIZE_ERROR, f"a frame of {len(payload)} bytes where 4 are right")
    return int(_WORD.unpack(payload)[0]) & MAX_WINDOW


def unpadded(flags: int, payload: bytes) -> bytes:
    """Take off padding and priority.

    Raises:
        Http2Error: there is more of it than payload.

    """
    start, end = 0, len(payload)
    if flags & Flag.PADDED:
        start, end = 1, end - (payload[0] if payload else end)
    if flags & Flag.PRIORITY:
        start += 5
    if start > end:
        raise Http2Error(Code.PROTOCOL_ERROR, "a frame of padding alone")
    return payload[start:end]
