"""The receiving half of a connection: flow control of all its streams (RFC 9113, section 5.2)."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from policybridge_server.budget import Budget
from policybridge_server.grpc.http2.contract import TimedStream
from policybridge_server.grpc.http2.frames import Code, Http2Error, window_frame

CONNECTION_WINDOW: Final = 16 << 20
"""The window of a connection in bytes, for all streams together."""

_BUSY: Final = 16 << 20
"""Bytes of a connection. While it holds more, its client may not begin to send more of them."""


class Receiving:
    """The connection's receive window, and the streams with large messages that wait for more.

    Args:
        budget: the connection's memory budget.
        write: sends frames.

    Attributes:
        owed: bytes of DATA not yet returned to the window.
        large: streams with large messages; all except the first wait for more window.

    """

    __slots__ = ("_budget", "_unanswered", "_write", "large", "owed")

    def __init__(self, budget: Budget, write: Callable[[bytes], None]) -> None:
        self.owed = 0
        self._unanswered = 0
        self.large: OrderedDict[TimedStream, None] = OrderedDict()
        self._budget = budget
        self._write = write

    def give_back(self) -> None:
        """Let the peer send more, unless its calls have enough to do.

        Raises:
            Http2Error: it has sent more than it may.

        """
        if self.owed > CONNECTION_WINDOW:
            told = f"more than the connection's window of {CONNECTION_WINDOW} bytes"
            raise Http2Error(Code.FLOW_CONTROL_ERROR, told)
        if self._unanswered <= _BUSY:
            self._write(window_frame(0, self.owed))
            self.owed = 0

    def count(self, size: int) -> None:
        """Add bytes of unanswered messages; negative for answered ones."""
        self._unanswered += size
        if size < 0 and CONNECTION_WINDOW // 2 < self.owed <= CONNECTION_WINDOW:
            self.give_back()

    def let_send(self, stream: TimedStream, size: int) -> bool:
        """Let the peer send ``size`` more bytes on ``stream``, unless others come first; return whether it did.

        While the connection holds a lot, only one of the streams with large messages gets more: if all did, no message
        could be completed within the budget.
        """
        if self._budget.held > _BUSY:
            first = next(iter(self.large), stream)
            self.large[stream] = None
            if first is not stream:
                return False
        self._write(window_frame(stream.number, size))
        return True

    def relieve(self, stream: TimedStream) -> None:
        """Let the next stream with a large message go on: this one has sent its."""
        self.large.pop(stream, None)
        for other in list(self.large):
            other.give_back()
            if self._budget.held > _BUSY:
                return
            self.large.pop(other, None)
