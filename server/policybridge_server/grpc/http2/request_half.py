"""The receiving half of a stream: a call's request messages, put together and handed on within its bounds."""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from io import BytesIO
from typing import Final

from policybridge_core.errors import InvalidError, PolicyBridgeError, UnsupportedError
from policybridge_server.grpc.http2.contract import Call, StreamConnection
from policybridge_server.grpc.http2.frames import Code, StreamError
from policybridge_server.grpc.http2.messages import PREFIX, TINY, Assembly
from policybridge_server.grpc.http2.requests import RequestHeaders
from policybridge_server.transports.unpacking import WINDOW_BITS, Unpacking, pieces

WINDOW: Final = 1 << 20
"""The window of a stream in bytes."""

SMALL: Final = 4 << 10
"""Bytes of a message that does not count by itself while its call has it: an open call counts for as much."""


class RequestHalf(ABC):
    """The receiving half of one stream. `Stream` adds the answers, the deadline and the end.

    Args:
        connection: of the stream.
        number: HTTP/2's.
        headers: of the request.
        limit: largest request message, also unpacked.

    Attributes:
        remote_closed: whether the peer sends nothing more.

    """

    __slots__ = (
        "_assembly",
        "_awaited",
        "_held",
        "_holding",
        "_limit",
        "_over",
        "_owed",
        "_received",
        "_unanswered",
        "_unpacking",
        "_waiting",
        "call",
        "connection",
        "headers",
        "number",
        "remote_closed",
    )

    def __init__(self, connection: StreamConnection, number: int, headers: RequestHeaders, limit: int) -> None:
        self.connection = connection
        self.number = number
        self.headers = headers
        self.call: Call | None = None
        self.remote_closed = False
        self._limit = limit
        self._assembly: Assembly | None = None
        self._unpacking: tuple[Unpacking, BytesIO] | None = None
        # Unsent answers; while there are any, the peer may not send more.
        self._waiting: deque[memoryview] | None = None
        self._holding = self._over = self._awaited = False
        self._owed = 0  # bytes received, not yet returned to the window
        self._received = 0  # bytes of DATA
        self._held = 0  # bytes counted in the budget
        self._unanswered = 0  # of the held bytes, those that the call has

    @abstractmethod
    def fail(self, error: PolicyBridgeError) -> None:
        """End the call with an error; messages that are not sent yet are dropped."""

    @abstractmethod
    def proceed(self) -> None:
        """Continue the work left for this turn."""

    def take(self, size: int) -> None:
        """Count ``size`` bytes in the budget, until the stream ends at the latest.

        Raises:
            TooLargeError: the connection holds too much.

        """
        self.connection.budget.take(size)
        self._held += size

    def _give(self, size: int) -> None:
        self._held -= size
        self.connection.budget.give(size)

    def data(self, payload: bytes, charged: int) -> None:
        """Take a DATA frame's payload; ``charged`` is its size in flow control.

        Raises:
            PolicyBridgeError: a message is refused; the call ends with this error.
            StreamError: the peer exceeded the window.
            Http2Error: the peer has sent too many tiny pieces.

        """
        if self._over:
            return
        size = len(payload)
        self._owed += charged
        self._received += size
        if self._owed > WINDOW:
            raise StreamError(Code.FLOW_CONTROL_ERROR, f"more than the window of {WINDOW} bytes")
        if not (self._takes_whole(payload, size) or not size):
            self._gather(payload)
        if self._owed > WINDOW // 2:
            self.give_back()

    def _takes_whole(self, payload: bytes, size: int) -> bool:
        """Take a frame that is one whole message, as most are; return whether it is one."""
        if self._assembly is not None or self._holding or size < 5 or self.call is None:
            return False
        packed, length = PREFIX.unpack_from(payload)
        if packed or length != size - 5 or length > self._limit:
            return False
        if length > SMALL:
            self._have(length)
        self.call.message(payload[5:])
        return True

    def _gather(self, payload: bytes) -> None:
        self.take(len(payload))
        if self._assembly is None:
            self._assembly = Assembly()
        if len(payload) < TINY:
            self.connection.patience.spend()
        self._assembly.add(payload)
        self._hand_on()

    def _hand_on(self) -> None:
        """Pass the complete messages to the call, until it has enough or the turn ends."""
        while self._assembly is not None and not (self._holding or self._over):
            if not self._advance(self._assembly):
                if not self._assembly.size:
                    self._assembly = None
                elif not self._awaited:
                    self._awaited = True
                    self.connection.await_rest(self, True)
                if self.remote_closed:
                    self._end_requests()
                return
            if self.connection.is_tired():
                self.connection.later(self)
                return

    def _advance(self, assembly: Assembly) -> bool:
        """Pass on one message, or unpack a part of it; return whether there was work."""
        if self._unpacking is not None:
            self._unpack(*self._unpacking)
            return True
        before = assembly.size
        message = assembly.next(self._limit)
        if message is None:
            return False
        size = before - assembly.size - PREFIX.size
        self._has_rest()
        if size > WINDOW // 2:
            self.connection.relieve(self)
        if isinstance(message, bytes):
            self._give(PREFIX.size + size)
            if size > SMALL:
                self._have(size)
            self._pass(message)
        else:
            self._give(PREFIX.size)
            unpacked, packed = BytesIO(), self._drained(message)
            unpacking = Unpacking(_known(self.headers.encoding), packed, unpacked.write, self._limit)
            self._unpacking = (unpacking, unpacked)
        return True

    def _drained(self, packed: deque[bytes]) -> Iterator[bytes | bytearray]:
        """Give the pieces of a packed message, and count each no longer once it is unpacked."""
        while packed:
            piece = packed.popleft()
            yield from pieces(piece)
            self._give(len(piece))

    def _has_rest(self) -> None:
        if self._awaited:
            self._awaited = False
            self.connection.await_rest(self, False)

    def dismiss(self, error: PolicyBridgeError) -> None:
        """End the call because the rest of a message does not come."""
        self._awaited = False
        self.fail(error)

    def _unpack(self, unpacking: Unpacking, unpacked: BytesIO) -> None:
        self._have(unpacking.step())
        if unpacking.done:
            self._unpacking = None
            message = unpacked.getvalue()
            if len(message) <= SMALL:
                self._done(len(message))
            self._pass(message)

    def _pass(self, message: bytes) -> None:
        self.connection.patience.left += 1
        if self.call is not None:
            self.call.message(message)

    def _have(self, size: int) -> None:
        self.take(size)
        self._unanswered += size
        self.connection.count(size)

    def release(self, size: int) -> None:
        """Count a message of ``size`` bytes no longer, because the call is done with it."""
        if size > SMALL:
            self._done(min(size, self._unanswered))

    def _done(self, size: int) -> None:
        self._unanswered -= size
        self._give(size)
        self.connection.count(-size)

    def hold(self, holding: bool) -> None:
        """Hand no more messages to the call, and stop the peer from sending more; or go on."""
        self._holding = holding
        if holding:
            return
        if self._assembly is not None:
            self.proceed()
        if self._owed > WINDOW // 2:
            self.give_back()

    def give_back(self) -> None:
        """Let the peer send more, if it may."""
        # No window update while answers are unsent: a client that does not read cannot queue more requests.
        if self._holding or self._waiting or self.remote_closed or self._over:
            return
        # Another stream's end asks all waiting streams, also one that owes nothing; an update of 0 is illegal.
        if self._owed and self.connection.let_send(self, self._owed):
            self._owed = 0

    def half_closed(self) -> None:
        """Take the end of the requests.

        Raises:
            PolicyBridgeError: it is in the middle of a message.
            StreamError: it does not match the length in the request's headers.

        """
        self.remote_closed = True
        if self._over:
            return
        declared = self.headers.content_length
        if declared is not None and declared != self._received:
            raise StreamError(Code.PROTOCOL_ERROR, f"{self._received} bytes, and a content-length of {declared}")
        if self._assembly is None:
            self._end_requests()
        elif not self._holding:
            self._hand_on()

    def _end_requests(self) -> None:
        if self._assembly is not None:
            raise InvalidError("the requests end in the midst of a message")
        if self.call is not None and not self._over:
            self.call.half_closed()


def _known(encoding: str) -> str:
    if encoding not in WINDOW_BITS:
        raise UnsupportedError(f"messages in grpc-encoding {encoding[:100]!r}; taken are gzip and deflate")
    return encoding
