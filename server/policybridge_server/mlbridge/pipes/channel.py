"""A pair of FIFOs inside the loop's turns: what cannot be sent waits, reading can be paused."""

import os
import select
from collections.abc import Callable
from typing import Final

from policybridge_server.loop import Handler, Loop
from policybridge_server.mlbridge.pipes.fifos import Fifos

_READ: Final = 1 << 18


class PipeChannel:
    """One compile's bytes.

    Args:
        fifos: the channel owns their descriptors.
        loop: where their events are served.
        handler: told of what comes, and of the compiler's end.
        drained: called when all that waited is sent.

    """

    def __init__(self, fifos: Fifos, loop: Loop, handler: Handler, drained: Callable[[], None]) -> None:
        self._fifos = fifos
        self._loop = loop
        self._handler = handler
        self._drained = drained
        self._reading = True
        self._unsent = b""
        self.is_open = True
        loop.watch(fifos.questions, handler)

    @property
    def full(self) -> bool:
        """Whether something waits to be sent, because the compiler does not read, or all is over."""
        return bool(self._unsent) or not self.is_open

    def receive(self) -> bytes | None:
        """Give what has arrived: ``b""`` when the compiler has closed, ``None`` for nothing yet."""
        try:
            return os.read(self._fifos.questions, _READ)
        except BlockingIOError:
            return None

    def reopen(self) -> None:
        """Wait for another compiler on the same pair."""
        self._loop.unwatch(self._fifos.questions)
        self._fifos.reopen()
        self._loop.watch(self._fifos.questions, self._handler)

    def send(self, data: bytes) -> None:
        """Send ``data`` after all that still waits."""
        if not self.is_open:
            return
        if self._unsent:
            self._unsent += data
            return
        sent = self._try(data)
        if sent != len(data):
            self._unsent = data[sent:]
            self._loop.watch(self._fifos.answers, self, select.EPOLLOUT)
            self._watch()

    def ready(self, events: int) -> None:  # noqa: ARG002
        """Send what still waits, as far as it goes."""
        self._unsent = self._unsent[self._try(self._unsent) :]
        if not self._unsent:
            self._loop.unwatch(self._fifos.answers)
            self._watch()
            self._drained()

    def _try(self, data: bytes) -> int:
        try:
            return os.write(self._fifos.answers, data)
        except BlockingIOError:
            return 0

    def read(self, wanted: bool) -> None:
        """Take or leave what arrives; what is left waits with the compiler."""
        if wanted != self._reading:
            self._reading = wanted
            self._watch()

    def _watch(self) -> None:
        if self.is_open:
            # Who does not read answers is not read either: what waits here stays small.
            wanted = self._reading and not self._unsent
            self._loop.rewatch(self._fifos.questions, select.EPOLLIN if wanted else 0)

    def close(self) -> None:
        """Close both ends; twice is once."""
        if self.is_open:
            self.is_open = False
            self._loop.unwatch(self._fifos.questions)
            if self._unsent:
                self._loop.unwatch(self._fifos.answers)
            self._fifos.close()
