"""The numbers of a connection's streams: the meaning of frames on streams that are not open (RFC 9113, section 5.1)."""

from collections import OrderedDict, deque
from typing import Final

from policybridge_server.grpc.http2.frames import Code, Http2Error, StreamError

_REMEMBERED: Final = 1024
"""Limit of remembered streams that we ended first: late frames on them are ignored without an error."""

_GAPS: Final = 16
"""Limit of remembered ranges of numbers that the peer skipped: no stream may use them later."""


class StreamNumbers:
    """Which streams the peer has opened, which it skipped, and which of them we ended first.

    Attributes:
        last: the highest number so far; −1 before the first.

    """

    __slots__ = ("_ended_first", "_skipped", "last")

    def __init__(self) -> None:
        self.last = -1
        self._ended_first: OrderedDict[int, None] = OrderedDict()
        self._skipped: deque[range] = deque(maxlen=_GAPS)

    @property
    def told(self) -> int:
        """The last stream, as GOAWAY names it."""
        return max(self.last, 0)

    def skip(self, number: int) -> None:
        """Remember the numbers that the peer leaves out before ``number``."""
        self._skipped.append(range(self.last + 2, number, 2))

    def ended_first(self, number: int) -> None:
        """Remember that we ended a stream before its peer did."""
        self._ended_first[number] = None
        if len(self._ended_first) > _REMEMBERED:
            self._ended_first.popitem(last=False)

    def check_data(self, number: int) -> None:
        """Handle data on a stream that is not open, or whose requests have ended.

        Raises:
            Http2Error: it never was.
            StreamError: its peer had ended it.

        """
        self.check_opened(number, "data on")
        if number not in self._ended_first:
            raise StreamError(Code.STREAM_CLOSED, "data after the end")

    def check_headers(self, number: int) -> None:
        """Handle headers on a stream that was open, or whose number was skipped.

        Raises:
            Http2Error: its peer had ended it, or skipped it.

        """
        if number not in self._ended_first:
            skipped = any(number in numbers for numbers in self._skipped)
            code = Code.PROTOCOL_ERROR if skipped else Code.STREAM_CLOSED
            raise Http2Error(code, f"headers on stream {number}, which is closed")

    def check_opened(self, number: int, what: str) -> None:
        """Refuse a frame on a stream that never was.

        Raises:
            Http2Error: it never was.

        """
        if number > self.last:
            raise Http2Error(Code.PROTOCOL_ERROR, f"{what} stream {number}, which was never opened")
