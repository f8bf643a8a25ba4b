"""One HTTP/2 connection: frames in, streams, frames out."""

import logging
import select
import socket
from typing import Final, Protocol

from policybridge_core.errors import PolicyBridgeError
from policybridge_server.grpc.http2.frames import (
    DEFAULT_FRAME,
    DEFAULT_WINDOW,
    HEAD,
    MAX_WINDOW,
    PREFACE,
    Code,
    Flag,
    Http2Error,
    Kind,
    Setting,
    frame,
    goaway_frame,
    read_settings,
    read_word,
    reset_frame,
    settings_frame,
    unpadded,
    window_frame,
)
from policybridge_server.grpc.http2.headers import MAX_BLOCK, HeaderReader, write_headers
from policybridge_server.grpc.http2.stream import Call, Stream
from policybridge_server.loop import Loop
from policybridge_server.transports.channel import SocketChannel

_LOG = logging.getLogger(__name__)

_STREAM_WINDOW: Final = 1 << 20
_FRAME: Final = 1 << 18
_STREAMS: Final = 10_000
_SETTINGS: Final = settings_frame(
    {
        Setting.MAX_CONCURRENT_STREAMS: _STREAMS,
        Setting.INITIAL_WINDOW_SIZE: _STREAM_WINDOW,
        Setting.MAX_FRAME_SIZE: _FRAME,
        Setting.MAX_HEADER_LIST_SIZE: MAX_BLOCK,
    }
)
_HTTP1: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nThis port speaks gRPC.\n"
)

# Plain ints: looking up an IntEnum member takes longer than packing a frame (measured).
_DATA: Final = int(Kind.DATA)
_PADDED: Final = int(Flag.PADDED)
_END: Final = int(Flag.END_STREAM)


class ConnectionOwner(Protocol):
    """The server that accepted a connection.

    Attributes:
        loop: where their events are served.
        limit: largest request message in bytes.

    """

    loop: Loop
    limit: int

    def begin(self, stream: Stream) -> Call:
        """Begin the call of a new stream.

        Raises:
            PolicyBridgeError: the server has no such method.

        """

    def gone(self, connection: "Http2Connection") -> None:
        """Forget a connection that is closed."""


class Http2Connection:
    """Serves one connection inside the loop's turns.

    Args:
        connection: just accepted, non-blocking.
        peer: its address, as gRPC writes it.
        owner: the server that accepted it.

    """

    def __init__(self, connection: socket.socket, peer: str, owner: ConnectionOwner) -> None:
        self.peer = peer
        self.window = DEFAULT_WINDOW
        self.frame_size = DEFAULT_FRAME
        self._owner = owner
        self._rest = b""
        self._prefaced = False
        self._reader = HeaderReader()
        self._block: tuple[int, int, bytes] | None = None
        self._streams: dict[int, Stream] = {}
        self._last = 0
        self._stream_window = DEFAULT_WINDOW
        self._charged = 0
        self._out: list[bytes] | None = None
        self._leaving = False
        self._channel = SocketChannel(connection, owner.loop, self)

    def ready(self, events: int) -> None:
        """Take what has arrived; an error ends this connection and no other."""
        self._out = []
        try:
            if events & select.EPOLLOUT:
                self._channel.send_waiting()
            if events & select.EPOLLIN:
                self._receive()
            elif events & (select.EPOLLHUP | select.EPOLLERR):
                self.close()
        except Http2Error as fault:
            self._break(fault)
        except Exception as error:
            _LOG.error("a connection failed", exc_info=error)
            self._break(Http2Error(Code.INTERNAL_ERROR, f"the server failed: {error!r}"))
        out, self._out = self._out, None
        if out:
            self._channel.send(b"".join(out))

    def _break(self, fault: Http2Error) -> None:
        self.write(goaway_frame(self._last, fault.code, str(fault)))
        self._flush()
        self.close()

    def write(self, data: bytes) -> None:
        """Send frames. Those that answer what one call of `ready` received are sent together."""
        if self._out is None:
            self._channel.send(data)
        else:
            self._out.append(data)

    def _flush(self) -> None:
        if self._out:
            self._channel.send(b"".join(self._out))
            self._out.clear()

    def _receive(self) -> None:
        data = self._channel.receive()
        if data:
            self._feed(self._rest + data if self._rest else data)
        elif data is not None:
            self.close()

    def _feed(self, data: bytes) -> None:
        start = 0
        if not self._prefaced:
            start = self._preface(data)
            if not self._prefaced:
                self._rest = data
                return
        while len(data) - start >= HEAD.size:
            high, low, kind, flags, number = HEAD.unpack_from(data, start)
            size = high << 8 | low
            if size > _FRAME:
                raise Http2Error(Code.FRAME_SIZE_ERROR, f"a frame of {size} bytes; at most {_FRAME} are taken")
            end = start + HEAD.size + size
            if end > len(data):
                break
            self._frame(kind, flags, number & MAX_WINDOW, data[start + HEAD.size : end])
            start = end
        self._rest = data[start:]

    def _preface(self, data: bytes) -> int:
        if len(data) < len(PREFACE) and PREFACE.startswith(data):
            return 0
        if not data.startswith(PREFACE):
            self.write(_HTTP1)
            self.close()
            return 0
        self._prefaced = True
        self.write(_SETTINGS + window_frame(0, MAX_WINDOW - DEFAULT_WINDOW))
        return len(PREFACE)

    def _frame(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if self._block is not None and kind != Kind.CONTINUATION:
            raise Http2Error(Code.PROTOCOL_ERROR, "a frame among headers")
        if kind == _DATA:
            self._data(flags, number, payload)
        elif kind == Kind.WINDOW_UPDATE:
            self._widen(number, read_word(payload))
        elif kind == Kind.HEADERS:
            self._headers(number, flags, unpadded(flags, payload))
        elif kind == Kind.CONTINUATION:
            self._continue(number, flags, payload)
        elif kind == Kind.RST_STREAM:
            self._reset(number, payload)
        elif kind == Kind.PING:
            self._ping(flags, payload)
        elif kind == Kind.SETTINGS:
            self._settings(flags, payload)
        elif kind == Kind.PUSH_PROMISE:
            raise Http2Error(Code.PROTOCOL_ERROR, "clients do not push")

    def _data(self, flags: int, number: int, payload: bytes) -> None:
        size = len(payload)
        self._charge(size)
        stream = self._streams.get(number)
        if stream is None:
            if number > self._last or not number:
                raise Http2Error(Code.PROTOCOL_ERROR, f"data on stream {number}, which was never opened")
            return
        try:
            stream.data(unpadded(flags & _PADDED, payload) if flags & _PADDED else payload, size)
            if flags & _END:
                stream.half_closed()
        except PolicyBridgeError as error:
            stream.fail(error)

    def _charge(self, size: int) -> None:
        self._charged += size
        if self._charged > MAX_WINDOW // 2:
            self.write(window_frame(0, self._charged))
            self._charged = 0

    def consumed(self, stream: Stream, size: int) -> None:
        """Let the peer send ``size`` more bytes on ``stream``."""
        stream.credit += size
        if stream.credit > _STREAM_WINDOW // 2:
            self.write(window_frame(stream.number, stream.credit))
            stream.credit = 0

    def _widen(self, number: int, more: int) -> None:
        if not number:
            self.window += more
            if self.window > MAX_WINDOW:
                raise Http2Error(Code.FLOW_CONTROL_ERROR, "a window of more than 2 GiB")
            for each in list(self._streams.values()):
                each.pump()
        elif (stream := self._streams.get(number)) is not None:
            stream.window += more
            stream.pump()

    def _headers(self, number: int, flags: int, block: bytes) -> None:
        if number % 2 == 0:
            raise Http2Error(Code.PROTOCOL_ERROR, f"headers on stream {number}")
        if flags & Flag.END_HEADERS:
            self._open(number, flags, block)
        else:
            self._block = (number, flags, block)

    def _continue(self, number: int, flags: int, payload: bytes) -> None:
        if self._block is None or self._block[0] != number:
            raise Http2Error(Code.PROTOCOL_ERROR, "a CONTINUATION of nothing")
        _, first, block = self._block
        if len(block) + len(payload) > MAX_BLOCK:
            raise Http2Error(Code.ENHANCE_YOUR_CALM, f"headers of more than {MAX_BLOCK} bytes")
        self._block = (number, first, block + payload)
        if flags & Flag.END_HEADERS:
            self._block = None
            self._open(number, first, block + payload)

    def _open(self, number: int, flags: int, block: bytes) -> None:
        headers = self._reader.read(block)
        stream = self._streams.get(number)
        if stream is None:
            if number <= self._last:
                # The stream is already closed on our side: ignore its trailers.
                return
            self._last = number
            if self._leaving or len(self._streams) >= _STREAMS:
                self.write(reset_frame(number, Code.REFUSED_STREAM))
                return
            stream = Stream(self, number, self._stream_window, headers, self._owner.limit)
            self._streams[number] = stream
            self._serve(stream)
        if flags & Flag.END_STREAM:
            try:
                stream.half_closed()
            except PolicyBridgeError as error:
                stream.fail(error)

    def _serve(self, stream: Stream) -> None:
        if not stream.headers.is_grpc:
            self.write(frame(Kind.HEADERS, Flag.END_HEADERS | Flag.END_STREAM, stream.number, _NO_GRPC))
            stream.reset()
            return
        try:
            stream.serve(self._owner.begin(stream))
        except PolicyBridgeError as error:
            stream.fail(error)

    def _reset(self, number: int, payload: bytes) -> None:
        read_word(payload)
        stream = self._streams.get(number)
        if stream is not None:
            stream.reset()

    def _ping(self, flags: int, payload: bytes) -> None:
        if len(payload) != 8:
            raise Http2Error(Code.FRAME_SIZE_ERROR, "a PING that has not 8 bytes")
        if not flags & Flag.ACK:
            self.write(frame(Kind.PING, Flag.ACK, 0, payload))

    def _settings(self, flags: int, payload: bytes) -> None:
        if flags & Flag.ACK:
            return
        settings = read_settings(payload)
        window = settings.get(Setting.INITIAL_WINDOW_SIZE, self._stream_window)
        if window > MAX_WINDOW:
            raise Http2Error(Code.FLOW_CONTROL_ERROR, "an initial window of more than 2 GiB")
        largest = settings.get(Setting.MAX_FRAME_SIZE, self.frame_size)
        if largest < DEFAULT_FRAME:
            raise Http2Error(Code.PROTOCOL_ERROR, f"frames of {largest} bytes; everybody takes {DEFAULT_FRAME}")
        self.frame_size = min(largest, _FRAME)
        for stream in list(self._streams.values()):
            stream.window += window - self._stream_window
            stream.pump()
        self._stream_window = window
        self.write(frame(Kind.SETTINGS, Flag.ACK, 0))

    def forget(self, stream: Stream) -> None:
        """Forget a stream that has ended."""
        self._streams.pop(stream.number, None)
        if self._leaving and not self._streams:
            self._channel.finish()

    def leave(self) -> None:
        """Tell the peer that no new calls are taken, and close after the last one."""
        self._leaving = True
        self.write(goaway_frame(self._last, Code.NO_ERROR, "the server shuts down"))
        if not self._streams:
            self._channel.finish()

    def shut(self, error: PolicyBridgeError) -> None:
        """End all calls with an error."""
        for stream in list(self._streams.values()):
            stream.fail(error)

    def close(self) -> None:
        """Close the connection; twice is once."""
        self._flush()
        self._channel.close()
        for stream in list(self._streams.values()):
            stream.reset()
        self._owner.gone(self)


_NO_GRPC: Final = write_headers([(":status", "415")])
