"""One HTTP/2 stream: a gRPC call's messages (gRPC over HTTP2, grpc/doc/PROTOCOL-HTTP2.md)."""

import asyncio
from collections import deque
from typing import Final

from policybridge_core.errors import DeadlineError, PolicyBridgeError, TooLargeError
from policybridge_server.grpc.error_details import message_of, metadata_of
from policybridge_server.grpc.http2.answers import response_headers, trailers, unary_answer
from policybridge_server.grpc.http2.contract import Call, Metadata, StreamConnection
from policybridge_server.grpc.http2.frames import Code, Flag, Kind, StreamError, frame, reset_frame
from policybridge_server.grpc.http2.messages import PREFIX
from policybridge_server.grpc.http2.request_half import SMALL, WINDOW, RequestHalf
from policybridge_server.grpc.http2.requests import RequestHeaders

_DATA: Final = int(Kind.DATA)

_EARNED: Final = 6
"""Frames without progress that a peer may send for an answer: it acknowledges its bytes, and may ping."""

_KEPT: Final = 8 << 20
"""Bytes. While a connection holds more, its calls keep no large answers, which would take the room of requests."""


class Stream(RequestHalf):
    """One call: its requests (`RequestHalf`), its answers, its deadline and its end.

    Args:
        connection: of the stream.
        number: HTTP/2's.
        headers: of the request.
        limit: largest request message, also unpacked.

    Attributes:
        difference: the peer's window of this stream minus that of a new stream, in bytes.
        remote_closed: whether the peer has ended its side.

    """

    __slots__ = ("_deadline", "_expired", "_kept", "_sent", "_started", "_trailers", "difference")

    def __init__(self, connection: StreamConnection, number: int, headers: RequestHeaders, limit: int) -> None:
        super().__init__(connection, number, headers, limit)
        self.difference = self._kept = 0
        self._sent: asyncio.Future[None] | None = None
        self._trailers: bytes | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._started = self._expired = False

    def serve(self, call: Call) -> None:
        """Let ``call`` take the requests, until the client's deadline."""
        self.call = call
        if self.headers.timeout is not None:
            self._deadline = asyncio.get_running_loop().call_later(self.headers.timeout, self._expire)

    @property
    def time_remaining(self) -> float | None:
        """Seconds until the client's deadline; ``None`` if it has none."""
        if self._deadline is None:
            return None
        return max(0.0, self._deadline.when() - asyncio.get_running_loop().time())

    def _expire(self) -> None:
        # Thousands of streams may have the same deadline: not all of them are ended in one turn.
        self._expired = True
        self.connection.later(self)

    def proceed(self) -> None:
        """Continue the work left for this turn."""
        if self._expired and self._over:
            self.connection.write(reset_frame(self.number, Code.CANCEL))
            self.reset()
            return
        try:
            if self._expired:
                raise DeadlineError("the client's deadline has passed")
            self._hand_on()
        except PolicyBridgeError as error:
            self.fail(error)

    def send_headers(self, metadata: Metadata = ()) -> None:
        """Send the response's headers, unless they are sent; the first message does by itself."""
        if not self._started and not self._over:
            self._started = True
            block = response_headers(metadata)
            self.connection.write(frame(Kind.HEADERS, Flag.END_HEADERS, self.number, block))

    def send(self, message: bytes) -> None:
        """Send one response message, as soon as the peer's window allows."""
        if self._over:
            return
        if not self._started:
            self.send_headers()
        prefix = PREFIX.pack(0, len(message))
        size, sending = len(prefix) + len(message), self.connection.sending
        fits = size <= sending.room and size <= sending.window and size <= sending.initial + self.difference
        if fits and not self._waiting:
            self._write(prefix + message)
            return
        try:
            self.take(size)
        except PolicyBridgeError as error:
            self.fail(error)
            return
        if self._waiting is None:
            self._waiting = deque()
            sending.wait(self)
        # memoryview: slicing it does not copy.
        self._waiting += [memoryview(prefix + message)] if size < WINDOW else [memoryview(prefix), memoryview(message)]
        self.connection.pump()

    def _write(self, data: bytes | memoryview) -> None:
        connection, size = self.connection, len(data)
        self.difference -= size
        connection.sending.window -= size
        # A peer acknowledges large frames in several steps.
        connection.patience.left += _EARNED + (size >> 10)
        connection.write(frame(_DATA, 0, self.number, data))

    def pump(self) -> int:
        """Send one frame of the waiting data if the windows allow it; return its bytes."""
        sending = self.connection.sending
        room = min(sending.window, sending.initial + self.difference, sending.room)
        if room <= 0 or not self._waiting:
            return 0
        data = self._waiting.popleft()
        part = data[:room]
        if len(data) > room:
            self._waiting.appendleft(data[room:])
        self._write(part)
        self._give(len(part))
        if not self._waiting:
            self._all_sent()
        return len(part)

    def _forget_waiting(self) -> None:
        self._waiting = None
        self.connection.sending.leave(self)
        sent, self._sent = self._sent, None
        if sent is not None and not sent.done():
            sent.set_result(None)

    def _all_sent(self) -> None:
        self._forget_waiting()
        if self._trailers is not None:
            self._close(self._trailers)
        elif self._owed > WINDOW // 2:
            self.give_back()

    async def all_sent(self) -> None:
        """Wait until the peer has taken the messages that wait, or the stream has ended."""
        if self._waiting and not self._over:
            if self._sent is None:
                self._sent = asyncio.get_running_loop().create_future()
            await self._sent

    def widen(self, more: int) -> None:
        """Take a WINDOW_UPDATE of this stream.

        Raises:
            StreamError: it adds nothing, or too much.

        """
        if not more:
            raise StreamError(Code.PROTOCOL_ERROR, "a window that grows by nothing")
        self.difference += more
        if self.connection.sending.initial + self.difference > 2**31 - 1:
            raise StreamError(Code.FLOW_CONTROL_ERROR, "a window of more than 2 GiB")
        if self._waiting:
            self.connection.sending.wait(self)

    def keep(self, size: int) -> bool:
        """Say whether the call may keep an answer of ``size`` bytes, in place of the one before; count it then."""
        if self._kept:
            self._give(self._kept)
            self._kept = 0
        if size <= SMALL:
            return True
        if self._over or self.connection.budget.held + size > _KEPT:
            return False
        try:
            self.take(size)
        except TooLargeError:
            return False
        self._kept = size
        return True

    def reply(self, message: bytes) -> None:
        """Send the one response of a unary call, and end the call with OK."""
        size = 5 + len(message)
        connection, sending = self.connection, self.connection.sending
        fits = size <= sending.room and size <= sending.window and size <= sending.initial + self.difference
        if self._started or self._over or not fits:
            self.release(self._unanswered)
            self.send(message)
            self.finish(0)
            return
        self._over = True
        sending.window -= size
        connection.patience.left += _EARNED
        connection.write(unary_answer(self.number, message))
        self._end_remote()

    def finish(self, status: int, message: str = "", metadata: Metadata = ()) -> None:
        """End the call with a gRPC status, after all messages; a second call does nothing."""
        if self._over:
            return
        if status:
            self.connection.told(status)
        block = trailers(status, message, metadata, alone=not self._started)
        self._over = True
        if self._waiting:
            self._trailers = block
        else:
            self._close(block)

    def fail(self, error: PolicyBridgeError) -> None:
        """End the call with an error; messages that are not sent yet are dropped."""
        if not self._over:
            self._forget_waiting()
            call = self.call
            self.finish(error.status, message_of(error), metadata_of(error))
            if call is not None:
                call.cancelled()

    def _close(self, trailers: bytes) -> None:
        self._trailers = None
        self.connection.patience.left += _EARNED
        self.connection.write(frame(Kind.HEADERS, Flag.END_HEADERS | Flag.END_STREAM, self.number, trailers))
        self._end_remote()

    def _end_remote(self) -> None:
        if not self.remote_closed:
            # The answer is complete: tell the client to send no more.
            self.connection.write(reset_frame(self.number, Code.NO_ERROR))
        self._end()

    def reset(self) -> None:
        """End the stream because the peer reset it or broke the protocol, or because the connection is closed."""
        call = self.call
        over, self._over = self._over, True
        self._end()
        if call is not None and not over:
            call.cancelled()

    def _end(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        if self._waiting is not None:
            self._forget_waiting()
        if self._unanswered:
            self._done(self._unanswered)
        if self._awaited:
            self._has_rest()
        held, self._held = self._held, 0
        self.connection.budget.give(held)
        self._assembly = self._unpacking = None
        # The call refers to the stream as well: without this both would wait for the garbage collector.
        self.call = None
        self.connection.forget(self)
