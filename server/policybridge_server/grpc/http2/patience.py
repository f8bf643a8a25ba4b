"""Bears frames that bring no call further, up to a bound."""

import time
from typing import Final

from policybridge_server.grpc.http2.frames import Code, Http2Error

_BURST: Final = 2000
_PER_SECOND: Final = 50


class Patience:
    """Bears frames that bring no call further, up to a bound; answers, and time, let it recover.

    Such frames are pings, settings, empty or tiny DATA, resets of calls and the like. Clients send some of them for
    each answer. A peer that sends thousands of them without need is an attack.

    Attributes:
        left: points; a frame of such a kind takes one, an answer adds some.

    """

    __slots__ = ("_since", "left")

    def __init__(self) -> None:
        self.left = _BURST
        self._since = time.monotonic()

    def spend(self, points: int = 1) -> None:
        """Bear one frame more.

        Raises:
            Http2Error: there were too many.

        """
        self.left = min(self.left, _BURST) - points
        if self.left < 0:
            self._recover()

    def _recover(self) -> None:
        now = time.monotonic()
        self.left += min(_BURST, int((now - self._since) * _PER_SECOND))
        self._since = now
        if self.left < 0:
            raise Http2Error(Code.ENHANCE_YOUR_CALM, "too many frames that bring no call further")
