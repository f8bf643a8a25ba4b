"""The open streams of one connection, and the effects of the peer's frames on them (RFC 9113, section 6)."""

from typing import Final

from policybridge_core.errors import InvalidError, PolicyBridgeError
from policybridge_server.grpc.http2.blocks import Block, HeaderBlocks, check_priority
from policybridge_server.grpc.http2.contract import StreamConnection
from policybridge_server.grpc.http2.frames import (
    Code,
    Flag,
    Http2Error,
    Kind,
    Setting,
    StreamError,
    check_frame,
    frame,
    read_settings,
    read_word,
    reset_frame,
    unpadded,
)
from policybridge_server.grpc.http2.greeting import STREAMS
from policybridge_server.grpc.http2.headers import HeaderReader, write_headers
from policybridge_server.grpc.http2.numbers import StreamNumbers
from policybridge_server.grpc.http2.owner import ConnectionOwner
from policybridge_server.grpc.http2.receiving import CONNECTION_WINDOW, Receiving
from policybridge_server.grpc.http2.requests import RequestHeaders
from policybridge_server.grpc.http2.stream import Stream

# Plain ints: looking up an IntEnum member takes longer than packing a frame (measured).
_DATA: Final = int(Kind.DATA)
_HEADERS: Final = int(Kind.HEADERS)
_WINDOW_UPDATE: Final = int(Kind.WINDOW_UPDATE)
_CONTINUATION: Final = int(Kind.CONTINUATION)
_PADDED: Final = int(Flag.PADDED)
_END: Final = int(Flag.END_STREAM)

_NO_GRPC: Final = write_headers([(":status", "415")])


class Streams:
    """Takes the frames of one connection.

    Args:
        connection: the streams' connection.
        owner: the server, which begins their calls and learns of the first one.
        receiving: the connection's receive window.

    Attributes:
        open: the streams by their numbers.
        numbers: of all streams so far.
        blocks: of headers; one may be there in part.
        refused: whether no new streams are taken.

    """

    __slots__ = ("_connection", "_owner", "_patience", "_reader", "_receiving", "blocks", "numbers", "open", "refused")

    def __init__(self, connection: StreamConnection, owner: ConnectionOwner, receiving: Receiving) -> None:
        self.open: dict[int, Stream] = {}
        self.numbers = StreamNumbers()
        self.blocks = HeaderBlocks()
        self.refused = False
        self._reader = HeaderReader()
        self._connection = connection
        self._patience = connection.patience
        self._owner = owner
        self._receiving = receiving

    def take(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        """Take one frame.

        Raises:
            Http2Error: it is against the rules; the connection ends.

        """
        if self.blocks.begun is not None and kind != _CONTINUATION:
            raise Http2Error(Code.PROTOCOL_ERROR, "a frame among headers")
        try:
            if kind == _WINDOW_UPDATE and len(payload) == 4:
                # Clients send two for each decision; their size is the only rule that `check_frame` has for them.
                self._patience.spend()
                self._widen(number, read_word(payload))
                return
            # DATA and HEADERS have no rule but this one.
            if kind > _HEADERS or not number:
                check_frame(kind, flags, number, len(payload))
            if kind == _DATA:
                self._data(flags, number, payload)
            elif kind == _HEADERS:
                self._open(self.blocks.begin(flags, number, payload))
            else:
                self._patience.spend()
                self._other(kind, flags, number, payload)
        except StreamError as fault:
            self._reject(number, fault)

    def _other(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == Kind.CONTINUATION:
            self._open(self.blocks.go_on(flags, number, payload))
        elif kind == Kind.RST_STREAM:
            self._reset(number)
        elif kind == Kind.PING and not flags & Flag.ACK:
            self._connection.write(frame(Kind.PING, Flag.ACK, 0, payload))
        elif kind == Kind.SETTINGS and not flags & Flag.ACK:
            self._settings(payload)
        elif kind == Kind.PRIORITY:
            check_priority(number, payload)
        elif kind == Kind.PUSH_PROMISE:
            raise Http2Error(Code.PROTOCOL_ERROR, "clients do not push")

    def _reject(self, number: int, fault: StreamError) -> None:
        """End one stream, on which the peer broke the protocol."""
        self._patience.spend()
        self._connection.write(reset_frame(number, fault.code))
        stream = self.open.get(number)
        if stream is not None:
            stream.reset()

    def _data(self, flags: int, number: int, payload: bytes) -> None:
        size = len(payload)
        self._receiving.owed += size
        if self._receiving.owed > CONNECTION_WINDOW // 2:
            self._receiving.give_back()
        stream = self.open.get(number)
        if stream is None or stream.remote_closed:
            if number <= self.numbers.last:
                self._patience.spend()
            self.numbers.check_data(number)
            return
        if flags & _PADDED:
            payload = unpadded(_PADDED, payload)
        if not (payload or flags & _END):
            self._patience.spend()
        try:
            stream.data(payload, size)
            if flags & _END:
                stream.half_closed()
        except PolicyBridgeError as error:
            stream.fail(error)

    def _widen(self, number: int, more: int) -> None:
        if not number:
            self._connection.sending.widen(more)
        elif (stream := self.open.get(number)) is not None:
            stream.widen(more)
        else:
            self.numbers.check_opened(number, "a window on")

    def _open(self, block: Block | None) -> None:
        if block is None:
            return
        flags, number, priority, data = block
        if len(data) >= 1 << 10:
            self._patience.spend(len(data) >> 10)
        headers = self._reader.read(data)
        stream = self.open.get(number)
        if stream is not None:
            self._trailers(stream, flags, headers)
        elif number > self.numbers.last:
            self._begin(flags, number, priority, headers)
        else:
            self.numbers.check_headers(number)

    def _trailers(self, stream: Stream, flags: int, headers: RequestHeaders) -> None:
        if stream.remote_closed:
            raise StreamError(Code.STREAM_CLOSED, "headers after the end")
        if headers.trailer_fault or not flags & _END:
            raise StreamError(Code.PROTOCOL_ERROR, headers.trailer_fault or "headers that are no trailers")
        _half_close(stream)

    def _begin(self, flags: int, number: int, priority: bytes, headers: RequestHeaders) -> None:
        numbers = self.numbers
        if number > numbers.last + 2:
            numbers.skip(number)
        numbers.last = number
        if priority:
            check_priority(number, priority)
        if headers.fault:
            self.numbers.ended_first(number)
            raise StreamError(Code.PROTOCOL_ERROR, headers.fault)
        if self.refused or len(self.open) >= STREAMS:
            self.numbers.ended_first(number)
            raise StreamError(Code.REFUSED_STREAM, "too many streams")
        stream = Stream(self._connection, number, headers, self._owner.limit_of(headers.path))
        if not self.open:
            self._owner.doors.satisfied(self._connection)
        self.open[number] = stream
        if headers.is_grpc:
            self._serve(stream, headers)
        else:
            self._connection.write(frame(Kind.HEADERS, Flag.END_HEADERS | Flag.END_STREAM, number, _NO_GRPC))
            stream.reset()
        if flags & _END:
            _half_close(stream)

    def _serve(self, stream: Stream, headers: RequestHeaders) -> None:
        try:
            stream.take(headers.cost)
            if headers.bad_timeout:
                raise InvalidError(f"the grpc-timeout {headers.bad_timeout[:20]!r} is not 1 to 8 digits and a unit")
            stream.serve(self._owner.begin(stream))
        except PolicyBridgeError as error:
            stream.fail(error)

    def _reset(self, number: int) -> None:
        self.numbers.check_opened(number, "a reset of")
        stream = self.open.get(number)
        if stream is not None:
            stream.remote_closed = True
            stream.reset()

    def _settings(self, payload: bytes) -> None:
        # A frame may name tens of thousands of settings; clients name a handful.
        self._patience.spend(len(payload) >> 6)
        settings = read_settings(payload)
        sending = self._connection.sending
        sending.set(settings.get(Setting.INITIAL_WINDOW_SIZE), settings.get(Setting.MAX_FRAME_SIZE))
        self._connection.write(frame(Kind.SETTINGS, Flag.ACK, 0))


def _half_close(stream: Stream) -> None:
    try:
        stream.half_closed()
    except PolicyBridgeError as error:
        stream.fail(error)
