"""The sending half of a connection: flow control (RFC 9113, section 5.2), and the streams whose answers wait for it."""

from collections import OrderedDict
from typing import Final, Protocol

from policybridge_server.grpc.http2.frames import DEFAULT_FRAME, DEFAULT_WINDOW, MAX_WINDOW, Code, Http2Error

_BURST: Final = 1 << 20
_TRIED: Final = 64
"""Bytes that are sent, and streams that are tried, in one turn of the loop."""


class Waiting(Protocol):
    """A stream with answers that wait."""

    def pump(self) -> int:
        """Send one frame if the windows let it; give its bytes."""


class Sending:
    """The peer's receive windows, and the streams that wait for them.

    The window of a stream is `initial` and the stream's own difference to it, so that a change of `initial` needs no
    visit to the streams. Streams that wait are tried in turn, a bounded number of them in each turn of the loop.

    Args:
        largest: bytes of a DATA frame that we send.

    Attributes:
        window: bytes that the peer takes on all streams together.
        initial: bytes that it takes on a new stream.
        room: bytes that a DATA frame may have now; 0 while the socket is full.
        untried: how many of the streams that wait may be able to send.

    """

    __slots__ = ("_frame", "_largest", "_waiting", "initial", "room", "untried", "window")

    def __init__(self, largest: int) -> None:
        self.window = DEFAULT_WINDOW
        self.initial = DEFAULT_WINDOW
        self.room = DEFAULT_FRAME
        self._frame = DEFAULT_FRAME
        self._largest = largest
        self._waiting: OrderedDict[Waiting, None] = OrderedDict()
        self.untried = 0

    def widen(self, more: int) -> None:
        """Take a WINDOW_UPDATE of the connection.

        Raises:
            Http2Error: it adds nothing, or too much.

        """
        if not more:
            raise Http2Error(Code.PROTOCOL_ERROR, "a window that grows by nothing")
        self.window += more
        if self.window > MAX_WINDOW:
            raise Http2Error(Code.FLOW_CONTROL_ERROR, "a window of more than 2 GiB")
        self.untried = len(self._waiting)

    def set(self, initial: int | None, frame: int | None) -> None:
        """Apply the peer's settings, if present."""
        if initial is not None:
            self.initial = initial
            self.untried = len(self._waiting)
        if frame is not None:
            self._frame = min(frame, self._largest)
            self.room = self._frame if self.room else 0

    def fill(self) -> None:
        """Send no messages: the socket is full."""
        self.room = 0

    def drain(self) -> None:
        """Send messages again."""
        self.room = self._frame
        self.untried = len(self._waiting)

    def wait(self, stream: Waiting) -> None:
        """Let ``stream`` wait until it can send."""
        self._waiting[stream] = None
        self._waiting.move_to_end(stream, last=False)
        self.untried += 1

    def leave(self, stream: Waiting) -> None:
        """Forget a stream that has sent all, or has ended."""
        self._waiting.pop(stream, None)
        if not self._waiting:
            self.untried = 0

    @property
    def due(self) -> bool:
        """Whether a stream that waits may be able to send."""
        return bool(self.untried and self._waiting and self.window > 0 and self.room)

    def pump(self) -> None:
        """Send as much as the windows and the time of one turn allow."""
        left, tried = _BURST, 0
        while self.due and left > 0 and tried < _TRIED:
            stream = next(iter(self._waiting))
            self._waiting.move_to_end(stream)
            sent = stream.pump()
            left -= sent
            if not sent:
                tried += 1
                self.untried = min(self.untried, len(self._waiting)) - 1
