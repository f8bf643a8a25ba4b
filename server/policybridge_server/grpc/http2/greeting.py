"""How a connection begins: the peer's preface and ours (RFC 9113, section 3.4)."""

from typing import Final

from policybridge_server.grpc.http2.frames import (
    DEFAULT_WINDOW,
    HEAD,
    PREFACE,
    Code,
    Flag,
    Http2Error,
    Kind,
    Setting,
    goaway_frame,
    settings_frame,
    window_frame,
)
from policybridge_server.grpc.http2.headers import MAX_BLOCK
from policybridge_server.grpc.http2.receiving import CONNECTION_WINDOW
from policybridge_server.grpc.http2.request_half import WINDOW

FRAME: Final = 1 << 18
"""Bytes of the largest frame that is taken."""

STREAMS: Final = 10_000
"""Calls at a time."""

OURS: Final = settings_frame(
    {
        Setting.MAX_CONCURRENT_STREAMS: STREAMS,
        Setting.INITIAL_WINDOW_SIZE: WINDOW,
        Setting.MAX_FRAME_SIZE: FRAME,
        Setting.MAX_HEADER_LIST_SIZE: MAX_BLOCK,
    }
) + window_frame(0, CONNECTION_WINDOW - DEFAULT_WINDOW)
"""The server's first bytes."""

REFUSAL: Final = settings_frame({}) + goaway_frame(
    0, Code.ENHANCE_YOUR_CALM, "the server is full: all connections have sessions; try again later"
)
"""The answer to a client for which there is no room."""

HTTP1: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nThis port speaks gRPC.\n"
)
"""The answer to a client of HTTP/1.1."""

_METHODS: Final = (b"GET ", b"POST ", b"PUT ", b"HEAD ", b"DELETE ", b"OPTIONS ", b"PATCH ", b"CONNECT ", b"TRACE ")


def is_http1(data: bytes) -> bool:
    """Tell whether a client of HTTP/1.1 has connected."""
    return data.startswith(_METHODS)


def has_preface(data: bytes) -> bool:
    """Return whether the whole preface has arrived.

    Raises:
        Http2Error: another thing is.

    """
    if not data.startswith(PREFACE[: len(data)]):
        raise Http2Error(Code.PROTOCOL_ERROR, "no HTTP/2: the connection preface is missing")
    return len(data) >= len(PREFACE)


def has_settings(data: bytes) -> bool:
    """Tell whether the head of a SETTINGS frame follows the preface.

    Raises:
        Http2Error: another frame does.

    """
    if len(data) < len(PREFACE) + HEAD.size:
        return False
    *_, kind, flags, _ = HEAD.unpack_from(data, len(PREFACE))
    if kind != Kind.SETTINGS or flags & Flag.ACK:
        raise Http2Error(Code.PROTOCOL_ERROR, "the first frame is not SETTINGS")
    return True
