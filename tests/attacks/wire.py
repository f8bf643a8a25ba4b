"""A raw HTTP/2 peer that sends whatever it is told to; see RFC 9113 for the frames."""

import contextlib
import select
import socket
import struct
import time
from collections.abc import Iterable
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 8, 9
END_STREAM, END_HEADERS = 1, 4
_WIDE: Final = struct.pack(">HL", 4, 2**31 - 1)


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Write one frame."""
    return struct.pack(">L", len(payload))[1:] + struct.pack(">BBL", kind, flags, stream) + payload


def literal(name: str, value: str, *, indexed: bool = False) -> bytes:
    """Write one header field; ``indexed`` lets the peer remember it."""
    return (b"\x40" if indexed else b"\0") + _string(name) + _string(value)


def _string(text: str) -> bytes:
    size, data = len(text), text.encode()
    if size < 127:
        return bytes((size,)) + data
    size -= 127
    written = bytearray((127,))
    while size >= 128:
        written.append(size % 128 + 128)
        size //= 128
    return bytes((*written, size)) + data


def request_headers(path: str, *more: bytes) -> bytes:
    """Write the headers of a gRPC request."""
    fields = {":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost"}
    fields |= {"content-type": "application/grpc", "te": "trailers"}
    return b"".join(literal(name, value) for name, value in fields.items()) + b"".join(more)


def message(data: bytes, *, packed: bool = False) -> bytes:
    """Write a gRPC message behind its prefix."""
    return struct.pack(">BL", packed, len(data)) + data


class Peer:
    """One connection.

    Args:
        address: ``HOST:PORT``.
        wide: whether the peer offers the largest windows, so that the server need not wait with its answers.
        reads: whether `send` reads what the server sends meanwhile, and throws it away.

    """

    def __init__(self, address: str, *, wide: bool = False, reads: bool = True) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=10)
        self.socket.setblocking(False)
        self._reads = reads
        self.closed = False
        wide_window = frame(WINDOW_UPDATE, 0, 0, struct.pack(">L", 2**31 - 1 - 65_535))
        self.send([PREFACE, frame(SETTINGS, 0, 0, _WIDE) + wide_window if wide else frame(SETTINGS, 0, 0)])

    def send(self, pieces: Iterable[bytes], seconds: float = 10.0) -> None:
        """Send ``pieces`` until all are sent, the server has closed, or the time is over."""
        end = time.monotonic() + seconds
        for piece in pieces:
            left = memoryview(piece)
            while left and not self.closed and time.monotonic() < end:
                left = left[self._some(left) :]
            if self.closed or time.monotonic() >= end:
                return

    def _some(self, data: memoryview) -> int:
        ready, writable, _ = select.select([self.socket] if self._reads else [], [self.socket], [], 0.1)
        try:
            if ready and not self.socket.recv(1 << 18):
                self.closed = True
            return self.socket.send(data) if writable else 0
        except BlockingIOError:
            return 0
        except OSError:
            self.closed = True
            return 0

    def idle(self, seconds: float) -> None:
        """Stay connected."""
        time.sleep(seconds)

    def close(self) -> None:
        """Disconnect."""
        with contextlib.suppress(OSError):
            self.socket.close()
