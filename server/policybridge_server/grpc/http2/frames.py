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
LARGEST_FRAME: Final = 2**24 - 1

_WORD: Final = struct.Struct(">L")
_SETTING: Final = struct.Struct(">HL")


class Kind(IntEnum):
    """Frame types. Others are ignored, as the RFC demands."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
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

    ENABLE_PUSH = 2
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


class StreamError(Exception):
    """The peer broke the protocol on one stream, which ends with this code; the others go on."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code


_ON_STREAM: Final = (True, True, True, True, False, True, False, False, None, True)
"""Whether frames of a type belong to a stream, or to the connection; ``None``: to either."""

_SIZES: Final[dict[int, int]] = {Kind.PRIORITY: 5, Kind.RST_STREAM: 4, Kind.PING: 8, Kind.WINDOW_UPDATE: 4}
"""The bytes that frames of a type have."""

_GOAWAY_SIZE: Final = 8


def check_frame(kind: int, flags: int, stream: int, size: int) -> None:
    """Check the rules of RFC 9113 for a type of frame: stream or connection, and size.

    Raises:
        Http2Error: the frame breaks it.

    """
    if kind >= len(_ON_STREAM):
        return
    on_stream = _ON_STREAM[kind]
    if on_stream is not None and on_stream is not (stream != 0):
        raise Http2Error(Code.PROTOCOL_ERROR, f"a {Kind(kind).name} frame on stream {stream}")
    right = _SIZES.get(kind, size)
    if kind == Kind.SETTINGS:
        right = 0 if flags & Flag.ACK else size - size % _SETTING.size
    elif kind == Kind.GOAWAY:
        right = max(size, _GOAWAY_SIZE)
    if size != right:
        raise Http2Error(Code.FRAME_SIZE_ERROR, f"a {Kind(kind).name} frame of {size} bytes")


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
        Http2Error: a value is out of range.

    """
    settings = dict(_SETTING.iter_unpack(payload))
    if settings.get(Setting.ENABLE_PUSH, 0) > 1:
        raise Http2Error(Code.PROTOCOL_ERROR, "ENABLE_PUSH is neither 0 nor 1")
    if settings.get(Setting.INITIAL_WINDOW_SIZE, 0) > MAX_WINDOW:
        raise Http2Error(Code.FLOW_CONTROL_ERROR, "an initial window of more than 2 GiB")
    largest = settings.get(Setting.MAX_FRAME_SIZE, DEFAULT_FRAME)
    if not DEFAULT_FRAME <= largest <= LARGEST_FRAME:
        raise Http2Error(Code.PROTOCOL_ERROR, f"MAX_FRAME_SIZE is {largest}; it is {DEFAULT_FRAME} to {LARGEST_FRAME}")
    return settings


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
    """Read 31 bits: the increment of a WINDOW_UPDATE, or the stream of a dependency."""
    return int(_WORD.unpack_from(payload)[0]) & MAX_WINDOW


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
        raise Http2Error(Code.PROTOCOL_ERROR, "a frame of only padding")
    return payload[start:end]


def priority_of(flags: int, payload: bytes) -> bytes:
    """Give the five bytes of priority in a HEADERS frame; ``b""`` if it has none."""
    if not flags & Flag.PRIORITY:
        return b""
    start = 1 if flags & Flag.PADDED else 0
    return payload[start : start + 5]
