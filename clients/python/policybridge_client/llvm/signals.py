"""Signals to the host as an exception, raised where it can be handled."""

import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Final

_TAKEN: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """The host was told to stop by signal ``number``."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


class Interrupts:
    """Holds `Interrupted` back where a process or a folder would be lost; it is raised once.

    Where no signals are taken (`TakenSignals`) it does nothing.
    """

    def __init__(self) -> None:
        self._waiting: int | None = None
        self._over = False
        self._holds = 0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let no signal in; one that comes meanwhile is raised at the end."""
        self._holds += 1
        try:
            yield
        finally:
            self._holds -= 1
            self._raise()

    def arrive(self, number: int, _: FrameType | None) -> None:
        """Take a signal; only the first one counts."""
        if not self._over and self._waiting is None:
            self._waiting = number
            self._raise()

    def _raise(self) -> None:
        if self._waiting is not None and not self._holds:
            number, self._waiting, self._over = self._waiting, None, True
            raise Interrupted(number)


class TakenSignals(AbstractContextManager[Interrupts]):
    """Takes the signals that ask to stop, for the main thread of a program; those that it ignores stay ignored."""

    def __enter__(self) -> Interrupts:
        interrupts = Interrupts()
        taken = [number for number in _TAKEN if signal.getsignal(number) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, interrupts.arrive) for number in taken}
        return interrupts

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
