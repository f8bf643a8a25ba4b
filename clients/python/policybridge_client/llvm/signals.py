"""Signals to the host, turned into an exception that is raised only at safe points."""

import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import FrameType
from typing import Final

AWAKE_WITHIN: Final = 0.2
"""Seconds that a main thread waits at most before it looks for signals.

A signal that comes just before a wait begins, or that the system gives to another thread, does not end the wait, and
its handler runs only after it.
"""

_TAKEN: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """The host was told to stop by signal ``number``."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Interrupts:
    """Raises `Interrupted` once, but not while a process or folder is made: it would be left behind.

    Without `TakenSignals` it does nothing.
    """

    def __init__(self) -> None:
        self._waiting: int | None = None
        self._over = False
        self._holds = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Delay a signal to the end of the block."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            self._raise()

    @contextmanager
    def guarded(self) -> Iterator[ExitStack]:
        """Give a stack whose resources no signal leaves open: it is closed while signals are held."""
        # The stack closes twice. If a signal arrives just before held(), the outer `with` closes the stack; signals are
        # raised only once, so nothing interrupts that.
        with ExitStack() as stack:
            try:
                yield stack
            finally:
                with self.held():
                    stack.close()

    def arrive(self, number: int, _: FrameType | None) -> None:
        """Handle a signal; only the first one has an effect."""
        if not self._over and self._waiting is None:
            self._waiting = number
            self._raise()

    def _raise(self) -> None:
        if self._waiting is not None and not self._holds:
            number, self._waiting, self._over = self._waiting, None, True
            raise Interrupted(number)


class TakenSignals(AbstractContextManager[Interrupts]):
    """Handles SIGINT, SIGTERM and SIGHUP in the main thread. A signal that the program ignores stays ignored."""

    def __enter__(self) -> Interrupts:
        interrupts = Interrupts()
        taken = [number for number in _TAKEN if signal.getsignal(number) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, interrupts.arrive) for number in taken}
        return interrupts

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
