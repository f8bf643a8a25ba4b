"""One HTTP/2 stream: a gRPC call's messages (gRPC over HTTP2, grpc/doc/PROTOCOL-HTTP2.md)."""

import asyncio
import struct
import zlib
from base64 import b64encode
from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol
from urllib.parse import quote

from policybridge_core.errors import (
    DeadlineError,
    InvalidError,
    PolicyBridgeError,
    TooLargeError,
    UnsupportedError,
)
from policybridge_server.grpc.error_details import message_of, metadata_of
from policybridge_server.grpc.http2.frames import Code, Flag, Kind, frame, reset_frame
from policybridge_server.grpc.http2.headers import Headers, write_headers

_DATA: Final = int(Kind.DATA)

Metadata = Iterable[tuple[str, str | bytes]]

_PREFIX: Final = struct.Struct(">BL")

_RESPONSE: Final = (
    (":status", "200"),
    ("content-type", "application/grpc"),
    ("grpc-accept-encoding", "identity,deflate,gzip"),
)
_OK: Final = write_headers([("grpc-status", "0")])
_WINDOW_BITS: Final = {"gzip": 31, "deflate": 15}

_UNITS: Final = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


class Call(Protocol):
    """Who serves a stream. Called on the loop thread; must neither block nor raise but `PolicyBridgeError`."""

    def message(self, data: bytes) -> None:
        """Take one request message."""
        ...

    def half_closed(self) -> None:
        """Take the end of the requests."""
        ...

    def cancelled(self) -> None:
        """Take the news that nobody waits for an answer any more: nothing may be sent."""
        ...


class Wire(Protocol):
    """The stream's connection, as the stream sees it."""

    peer: str
    window: int
    frame_size: int

    def write(self, data: bytes) -> None:
        """Send frames."""
        ...

    def consumed(self, stream: "Stream", size: int) -> None:
        """Let the peer send so much more on ``stream``."""
        ...

    def forget(self, stream: "Stream") -> None:
        """Take the end of a stream."""
        ...


class Stream:
    """One call.

    Args:
        wire: its connection.
        number: HTTP/2's.
        window: how much the peer takes on it.
        headers: of the request.
        limit: largest request message, also unpacked.

    Attributes:
        credit: what the peer has sent and was not told yet that it may send again.

    """

    def __init__(self, wire: Wire, number: int, window: int, headers: Headers, limit: int) -> None:
        self.wire = wire
        self.number = number
        self.window = window
        self.headers = headers
        self.call: Call | None = None
        self._limit = limit
        self._known = dict(headers)
        self.credit = 0
        self._pieces: list[bytes] = []
        self._missing = 0
        self._held = 0
        self._holding = False
        self._waiting: deque[memoryview] = deque()
        self._started = False
        self._remote_closed = False
        self._over = False
        self._trailers: bytes | None = None
        self._deadline: asyncio.TimerHandle | None = None

    @property
    def path(self) -> str:
        """``/package.Service/Method``."""
        return self._known.get(":path", "")

    @property
    def is_grpc(self) -> bool:
        """Whether the request is one of gRPC."""
        return self._known.get(":method") == "POST" and self._known.get("content-type", "").startswith(
            "application/grpc"
        )

    @property
    def metadata(self) -> list[tuple[str, str]]:
        """The request's headers but for those of HTTP/2."""
        return [header for header in self.headers if not header[0].startswith(":")]

    def serve(self, call: Call) -> None:
        """Let ``call`` take what comes, until the client's deadline."""
        self.call = call
        seconds = _timeout(self._known.get("grpc-timeout"))
        if seconds is not None:
            self._deadline = asyncio.get_running_loop().call_later(seconds, self._expire)

    @property
    def time_remaining(self) -> float | None:
        """Seconds until the client's deadline; ``None`` where it has none."""
        if self._deadline is None:
            return None
        return max(0.0, self._deadline.when() - asyncio.get_running_loop().time())

    def _expire(self) -> None:
        self.fail(DeadlineError("the client's deadline is over"))

    def data(self, payload: bytes, charged: int) -> None:
        """Take a DATA frame's payload; ``charged`` is what flow control counts for it.

        Raises:
            PolicyBridgeError: a message cannot be taken; the call ends with it.

        """
        if self._over:
            return
        self._held += charged
        if self._pieces:
            payload = self._joined(payload)
        if payload:
            self._cut(payload)
        self._give_back()

    def _joined(self, payload: bytes) -> bytes:
        """Give what came once it holds a message, ``b""`` before: joining at every piece would be quadratic."""
        self._pieces.append(payload)
        self._missing -= len(payload)
        if self._missing > 0:
            return b""
        joined = b"".join(self._pieces)
        self._pieces.clear()
        return joined

    def _cut(self, payload: bytes) -> None:
        size, missing = len(payload), 0
        position = 0
        while size - position >= 5 and not self._over and self.call is not None:
            packed, length = _PREFIX.unpack_from(payload, position)
            if length > self._limit:
                raise TooLargeError(f"a message of {length} bytes; at most {self._limit} are taken")
            missing = position + 5 + length - size
            if missing > 0:
                break
            message = payload[position + 5 : position + 5 + length]
            position += 5 + length
            self.call.message(self._unpacked(message) if packed else message)
        if position < size:
            self._pieces.append(payload[position:])
            self._missing = missing if missing > 0 else position + 5 - size

    def hold(self, holding: bool) -> None:
        """Let the peer wait, or not, because messages of it do."""
        self._holding = holding
        self._give_back()

    def _give_back(self) -> None:
        # Who does not take answers may not ask for ever more of them.
        if self._held and not (self._holding or self._waiting or self._remote_closed):
            held, self._held = self._held, 0
            self.wire.consumed(self, held)

    def _unpacked(self, message: bytes) -> bytes:
        encoding = self._known.get("grpc-encoding", "identity")
        if encoding not in _WINDOW_BITS:
            raise UnsupportedError(f"messages in grpc-encoding {encoding!r}; taken are gzip and deflate")
        unpacker = zlib.decompressobj(_WINDOW_BITS[encoding])
        try:
            data = unpacker.decompress(message, self._limit + 1)
        except zlib.error as error:
            raise InvalidError(f"a message is no {encoding}: {error}") from error
        if len(data) > self._limit:
            raise TooLargeError(f"a message of more than {self._limit} bytes, unpacked")
        return data

    def half_closed(self) -> None:
        """Take the end of the requests.

        Raises:
            InvalidError: it is in the midst of a message.

        """
        self._remote_closed = True
        if self._pieces and not self._over:
            raise InvalidError("the requests end in the midst of a message")
        if self.call is not None and not self._over:
            self.call.half_closed()

    def send_headers(self, metadata: Metadata = ()) -> None:
        """Send the response's headers, unless they are sent; the first message does by itself."""
        if not self._started and not self._over:
            self._started = True
            block = write_headers([*_RESPONSE, *_on_the_wire(metadata)])
            self.wire.write(frame(Kind.HEADERS, Flag.END_HEADERS, self.number, block))

    def send(self, message: bytes) -> None:
        """Send one response message, as soon as the peer takes it."""
        if self._over:
            return
        data = _PREFIX.pack(0, len(message)) + message
        if not self._started:
            self.send_headers()
        if not self._waiting and len(data) <= min(self.window, self.wire.window, self.wire.frame_size):
            self._write(data)
            return
        # A view: what is cut off it again and again is not copied.
        self._waiting.append(memoryview(data))
        self.pump()

    def _write(self, data: bytes | memoryview) -> None:
        self.window -= len(data)
        self.wire.window -= len(data)
        self.wire.write(frame(_DATA, 0, self.number, data))

    def pump(self) -> None:
        """Send what waits, as far as the windows reach."""
        while self._waiting:
            room = min(self.window, self.wire.window, self.wire.frame_size)
            if room <= 0:
                return
            data = self._waiting.popleft()
            self._write(data[:room])
            if len(data) > room:
                self._waiting.appendleft(data[room:])
        self._give_back()
        if self._trailers is not None:
            self._close(self._trailers)

    def finish(self, status: int, message: str = "", metadata: Metadata = ()) -> None:
        """End the call with a gRPC status, after all messages; twice is once."""
        if self._over:
            return
        block = _OK
        if status or metadata:
            told = [("grpc-status", str(status)), *([("grpc-message", quote(message, safe=_PLAIN))] if message else [])]
            block = write_headers([*told, *_on_the_wire(metadata)])
        if not self._started:
            block = write_headers(_RESPONSE[:2]) + block
        self._over = True
        if self._waiting:
            self._trailers = block
        else:
            self._close(block)

    def fail(self, error: PolicyBridgeError) -> None:
        """End a call that is under way, whose messages do not matter any more."""
        if not self._over:
            self._waiting.clear()
            self.finish(error.status, message_of(error), metadata_of(error))
            self._cancel()

    def _close(self, trailers: bytes) -> None:
        self._trailers = None
        self.wire.write(frame(Kind.HEADERS, Flag.END_HEADERS | Flag.END_STREAM, self.number, trailers))
        if not self._remote_closed:
            # The answer is complete: what the client still sends need not come.
            self.wire.write(reset_frame(self.number, Code.NO_ERROR))
        self._end()

    def reset(self) -> None:
        """Take the news that the peer, or the connection, ended the stream."""
        self._waiting.clear()
        over, self._over = self._over, True
        self._end()
        if not over:
            self._cancel()

    def _cancel(self) -> None:
        if self.call is not None:
            self.call.cancelled()

    def _end(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._pieces.clear()
        self.wire.forget(self)


_PLAIN: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
"""What a grpc-message carries as it is."""


def _on_the_wire(metadata: Metadata) -> list[tuple[str, str]]:
    return [(name, value if isinstance(value, str) else _base64(value)) for name, value in metadata]


def _base64(value: bytes) -> str:
    return b64encode(value).decode().rstrip("=")


def _timeout(header: str | None) -> float | None:
    """Read a ``grpc-timeout`` in seconds; one that cannot be read is none."""
    if not header or header[-1] not in _UNITS or not header[:-1].isdecimal():
        return None
    return int(header[:-1]) * _UNITS[header[-1]]
