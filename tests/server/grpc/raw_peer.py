"""A peer that sends any bytes over HTTP/2, and reads the frames that the server sends (RFC 9113)."""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, WITH_PRIORITY = 1, 1, 4, 8, 32
NO_ERROR, PROTOCOL_ERROR, FLOW_CONTROL_ERROR, STREAM_CLOSED, FRAME_SIZE_ERROR = 0, 1, 3, 5, 6
REFUSED_STREAM, CANCEL, COMPRESSION_ERROR, ENHANCE_YOUR_CALM = 7, 8, 9, 11

EVALUATE = "/policybridge.v1.PolicyService/Evaluate"
SESSION = "/policybridge.v1.PolicyService/Session"
REQUEST = (
    (":method", "POST"),
    (":scheme", "http"),
    (":path", SESSION),
    (":authority", "localhost"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
)
Fields = tuple[tuple[str, str], ...]


class Frame(NamedTuple):
    kind: int
    flags: int
    stream: int
    payload: bytes

    @property
    def code(self) -> int:
        """Of a GOAWAY or RST_STREAM."""
        start = 4 if self.kind == GOAWAY else 0
        return int.from_bytes(self.payload[start : start + 4])


def frame(kind: int, flags: int, stream: int, payload: bytes = b"", size: int | None = None) -> bytes:
    """Write one frame; ``size`` is what its head says."""
    return struct.pack(">L", len(payload) if size is None else size)[1:] + bytes((kind, flags)) + word(stream) + payload


def word(number: int) -> bytes:
    return struct.pack(">L", number)


def literal(name: str, value: str, *, indexed: bool = False) -> bytes:
    return (b"\x40" if indexed else b"\0") + _string(name) + _string(value)


def _string(text: str) -> bytes:
    data = text.encode()
    if len(data) < 127:
        return bytes((len(data),)) + data
    size, written = len(data) - 127, bytearray((127,))
    while size >= 128:
        written.append(size % 128 + 128)
        size //= 128
    return bytes((*written, size)) + data


def block(fields: Fields) -> bytes:
    """Write a header block."""
    return b"".join(literal(name, value) for name, value in fields)


def request(path: str = SESSION, *more: tuple[str, str]) -> bytes:
    """Write the headers of a gRPC request."""
    return block((*(field for field in REQUEST if field[0] != ":path"), *more)).replace(
        literal(":scheme", "http"), literal(":scheme", "http") + literal(":path", path)
    )


def headers(stream: int, flags: int = 0, path: str = SESSION, *more: tuple[str, str]) -> bytes:
    """Write the frame that opens a call."""
    return frame(HEADERS, END_HEADERS | flags, stream, request(path, *more))


def message(data: bytes, *, packed: bool = False, length: int | None = None) -> bytes:
    """Write a gRPC message; ``length`` is what its prefix says."""
    return struct.pack(">BL", packed, len(data) if length is None else length) + data


class RawPeer:
    """One connection.

    Args:
        address: ``grpc:HOST:PORT``.
        settings: payload of the first frame.
        greeting: what is sent first.

    """

    def __init__(self, address: str, settings: bytes = b"", greeting: bytes = PREFACE) -> None:
        host, _, port = address.removeprefix("grpc:").rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""
        self.send(greeting + frame(SETTINGS, 0, 0, settings))

    def send(self, data: bytes) -> bool:
        """Send ``data``; say whether the server takes it, or has closed."""
        try:
            self.socket.sendall(data)
        except (ConnectionResetError, BrokenPipeError):
            return False
        return True

    def frames(self) -> Iterator[Frame]:
        """Give what comes until the server closes."""
        while True:
            while len(self._rest) >= 9 and len(self._rest) >= 9 + int.from_bytes(self._rest[:3]):
                end = 9 + int.from_bytes(self._rest[:3])
                found = Frame(self._rest[3], self._rest[4], int.from_bytes(self._rest[5:9]), self._rest[9:end])
                self._rest = self._rest[end:]
                yield found
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionResetError:
                return
            if not data:
                return
            self._rest += data

    def next(self, *kinds: int, stream: int | None = None) -> Frame:
        """Give the next frame of one of the ``kinds``."""
        for found in self.frames():
            if found.kind in kinds and stream in (None, found.stream):
                return found
        raise AssertionError(f"the server closed before any frame of {kinds}")

    def fault(self) -> tuple[int, int]:
        """Give how the server ends a stream or the connection for an error: the frame's type and its code."""
        for found in self.frames():
            if found.kind in (GOAWAY, RST_STREAM) and found.code != NO_ERROR:
                return found.kind, found.code
        raise AssertionError("the server closed without a word")

    def answers_ping(self) -> bool:
        """Whether the connection goes on."""
        self.send(frame(PING, 0, 0, b"are you?"))
        return any(found.kind == PING and found.flags & ACK for found in self.frames())

    def status(self, stream: int) -> tuple[int, bytes]:
        """Give the grpc-status that ends a stream, and the headers that tell it."""
        while True:
            found = self.next(HEADERS, stream=stream)
            if b"grpc-status" in found.payload:
                at = found.payload.index(b"grpc-status") + len("grpc-status")
                size = found.payload[at]
                return int(found.payload[at + 1 : at + 1 + size]), found.payload


@contextmanager
def raw_peer(address: str, settings: bytes = b"", greeting: bytes = PREFACE) -> Iterator[RawPeer]:
    made = RawPeer(address, settings, greeting)
    try:
        yield made
    finally:
        made.socket.close()
