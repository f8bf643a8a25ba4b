"""The bytes of a gRPC call's answers: headers, trailers, and a whole unary answer in one piece."""

import struct
from base64 import b64encode
from typing import Final

from policybridge_server.grpc.error_details import percent_encoded
from policybridge_server.grpc.http2.contract import Metadata
from policybridge_server.grpc.http2.frames import HEAD, Flag, Kind
from policybridge_server.grpc.http2.headers import write_headers

_RESPONSE: Final = (
    (":status", "200"),
    ("content-type", "application/grpc"),
    ("grpc-accept-encoding", "identity,deflate,gzip"),
)
_OK: Final = write_headers([("grpc-status", "0")])

_HEADERS_BLOCK: Final = b"\x88\x0f\x10\x10application/grpc"
"""`:status: 200` and `content-type`, by their indices in HPACK's static table: clients read them faster than text."""

_UNARY_START: Final = struct.Struct(f">HBBBL{len(_HEADERS_BLOCK)}sHBBBLBL")
"""The bytes before the message of a unary answer: a frame of headers, the head of a DATA frame, and gRPC's prefix."""

_UNARY_HEADERS: Final = (len(_HEADERS_BLOCK) >> 8, len(_HEADERS_BLOCK) & 0xFF, int(Kind.HEADERS), int(Flag.END_HEADERS))
_UNARY_END: Final = (len(_OK) >> 8, len(_OK) & 0xFF, int(Kind.HEADERS), int(Flag.END_HEADERS | Flag.END_STREAM))

_DATA: Final = int(Kind.DATA)


def unary_answer(number: int, message: bytes) -> bytes:
    """Give all frames of a unary call's answer on the stream ``number``."""
    size = 5 + len(message)
    start = _UNARY_START.pack(
        *_UNARY_HEADERS, number, _HEADERS_BLOCK, size >> 8, size & 0xFF, _DATA, 0, number, 0, size - 5
    )
    return start + message + HEAD.pack(*_UNARY_END, number) + _OK


def response_headers(metadata: Metadata) -> bytes:
    """Give the block of a response's headers."""
    return write_headers([*_RESPONSE, *_on_the_wire(metadata)])


def trailers(status: int, message: str, metadata: Metadata, *, alone: bool) -> bytes:
    """Return the block that ends a call; ``alone`` if no headers came before it."""
    block = _OK
    if status or metadata:
        told = [("grpc-status", str(status)), *([("grpc-message", percent_encoded(message))] if message else [])]
        block = write_headers([*told, *_on_the_wire(metadata)])
    return write_headers(_RESPONSE[:2]) + block if alone else block


def _on_the_wire(metadata: Metadata) -> list[tuple[str, str]]:
    return [(name, value if isinstance(value, str) else _base64(value)) for name, value in metadata]


def _base64(value: bytes) -> str:
    return b64encode(value).decode().rstrip("=")
