"""One HTTP/2 stream: a gRPC call's messages (gRPC over HTTP2, grpc/doc/PROTOCOL-HTTP2.md)."""

import asyncio
import struct
import zlib
from base64 import b64encode
from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol
from urllib.parse import quote

from policybridge_core.errors import DeadlineError, InvalidError, PolicyBridgeError, TooLargeError, UnsupportedError
from policybridge_server.grpc.error_details import message_of, metadata_of
from policybridge_server.grpc.http2.frames import HEAD, Code, Flag, Kind, frame, reset_frame
from policybridge_server.grpc.http2.headers import RequestHeaders, write_headers

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

_HEADERS_BLOCK: Final = b"\x88\x0f\x10\x10application/grpc"
"""`:status: 200` and `content-type`, by their indices in HPACK's static table: clients read them faster than text."""

_UNARY_START: Final = struct.Struct(f">HBBBL{len(_HEADERS_BLOCK)}sHBBBLBL")
"""What comes before the message of a unary call: a frame of headers, the head of a DATA frame, and gRPC's prefix."""

_UNARY_HEADERS: Final = (len(_HEADERS_BLOCK) >> 8, len(_HEADERS_BLOCK) & 0xFF, int(Kind.HEADERS), int(Flag.END_HEADERS))
_UNARY_END: Final = (len(_OK) >> 8, len(_OK) & 0xFF, int(Kind.HEADERS), int(Flag.END_HEADERS | Flag.END_STREAM))


class Call(Protocol):
    """Serves one stream. Called on the loop thread; must not block, and raises nothing but `PolicyBridgeError`."""

    def message(self, data: bytes) -> None:
        """Take one request message."""

    def half_closed(self) -> None:
        """Take the end of the requests."""

    def cancelled(self) -> None:
        """End the call without an answer: the client has given up, or the stream has failed."""


class StreamConnection(Protocol):
    """What a stream needs of its connection."""

    peer: str
    window: int
    frame_size: int

    def write(self, data: bytes) -> None:
        """Send frames."""

    def consumed(self, stream: "Stream", size: int) -> None:
        """Let the peer send ``size`` more bytes on ``stream``."""

    def forget(self, stream: "Stream") -> None:
        """Forget a stream that has ended."""


class Stream:
    """One call.

    Args:
        connection: of the stream.
        number: HTTP/2's.
        window: how much the peer takes on it.
        headers: of the request.
        limit: largest request message, also unpacked.

    Attributes:
        credit: bytes that the peer may send again, and has not been told of yet.

    """

    __slots__ = (
        "_deadline",
        "_held",
        "_holding",
        "_limit",
        "_missing",
        "_over",
        "_pieces",
        "_remote_closed",
        "_started",
        "_trailers",
        "_waiting",
        "call",
        "connection",
        "credit",
        "headers",
        "number",
        "window",
    )

    def __init__(
        self, connection: StreamConnection, number: int, window: int, headers: RequestHeaders, limit: int
    ) -> None:
        self.connection = connection
        self.number = number
        self.window = window
        self.headers = headers
        self.call: Call | None = None
        self._limit = limit
        self.credit = 0
        self._pieces: list[bytes] = []
        self._missing = 0
        self._held = 0
        self._holding = False
        self._waiting: deque[memoryview] | None = None
        self._started = False
        self._remote_closed = False
        self._over = False
        self._trailers: bytes | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def serve(self, call: Call) -> None:
        """Let ``call`` take what comes, until the client's deadline."""
        self.call = call
        if self.headers.timeout is not None:
            self._deadline = asyncio.get_running_loop().call_later(self.headers.timeout, self._expire)

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
        """Stop the peer from sending more, or let it go on."""
        self._holding = holding
        self._give_back()

    def _give_back(self) -> None:
        # No window update while answers are unsent: a client that does not read cannot queue more requests.
        if self._held and not (self._holding or self._waiting or self._remote_closed):
            held, self._held = self._held, 0
            self.connection.consumed(self, held)

    def _unpacked(self, message: bytes) -> bytes:
        encoding = self.headers.encoding
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
            self.connection.write(frame(Kind.HEADERS, Flag.END_HEADERS, self.number, block))

    def send(self, message: bytes) -> None:
        """Send one response message, as soon as the peer takes it."""
        if self._over:
            return
        data = _PREFIX.pack(0, len(message)) + message
        if not self._started:
            self.send_headers()
        if not self._waiting and len(data) <= min(self.window, self.connection.window, self.connection.frame_size):
            self._write(data)
            return
        if self._waiting is None:
            self._waiting = deque()
        # memoryview: slicing it does not copy.
        self._waiting.append(memoryview(data))
        self.pump()

    def _write(self, data: bytes | memoryview) -> None:
        self.window -= len(data)
        self.connection.window -= len(data)
        self.connection.write(frame(_DATA, 0, self.number, data))

    def pump(self) -> None:
        """Send what waits, as far as the windows reach."""
        while self._waiting:
            room = min(self.window, self.connection.window, self.connection.frame_size)
            if room <= 0:
                return
            data = self._waiting.popleft()
            self._write(data[:room])
            if len(data) > room:
                self._waiting.appendleft(data[room:])
        self._give_back()
        if self._trailers is not None:
            self._close(self._trailers)

    def reply(self, message: bytes) -> None:
        """Send the one response of a unary call, and end the call with OK."""
        size = 5 + len(message)
        connection = self.connection
        if self._started or self._over or size > min(self.window, connection.window, connection.frame_size):
            self.send(message)
            self.finish(0)
            return
        self._over = True
        connection.window -= size
        number = self.number
        start = _UNARY_START.pack(
            *_UNARY_HEADERS, number, _HEADERS_BLOCK, size >> 8, size & 0xFF, _DATA, 0, number, 0, size - 5
        )
        connection.write(start + message + HEAD.pack(*_UNARY_END, number) + _OK)
        self._end_remote()

    def finish(self, status: int, message: str = "", metadata: Metadata = ()) -> None:
        """End the call with a gRPC status, after all messages; a second call does nothing."""
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
        """End the call with an error; messages that are not sent yet are dropped."""
        if not self._over:
            self._waiting, call = None, self.call
            self.finish(error.status, message_of(error), metadata_of(error))
            if call is not None:
                call.cancelled()

    def _close(self, trailers: bytes) -> None:
        self._trailers = None
        self.connection.write(frame(Kind.HEADERS, Flag.END_HEADERS | Flag.END_STREAM, self.number, trailers))
        self._end_remote()

    def _end_remote(self) -> None:
        if not self._remote_closed:
            # The answer is complete: tell the client to send no more.
            self.connection.write(reset_frame(self.number, Code.NO_ERROR))
        self._end()

    def reset(self) -> None:
        """End the stream because the peer reset it, or because the connection is closed."""
        self._waiting, call = None, self.call
        over, self._over = self._over, True
        self._end()
        if call is not None and not over:
            call.cancelled()

    def _end(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._pieces.clear()
        # The call refers to the stream as well: without this both would wait for the garbage collector.
        self.call = None
        self.connection.forget(self)


_PLAIN: Final = "".join(map(chr, range(0x20, 0x7F))).replace("%", "")
"""The characters that a grpc-message carries without escapes."""


def _on_the_wire(metadata: Metadata) -> list[tuple[str, str]]:
    return [(name, value if isinstance(value, str) else _base64(value)) for name, value in metadata]


def _base64(value: bytes) -> str:
    return b64encode(value).decode().rstrip("=")
