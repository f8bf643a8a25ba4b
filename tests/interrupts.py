"""Signals that come when no wait of the main thread is ended by them."""

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


@contextmanager
def interrupted_unnoticed(waiting_in: str) -> Iterator[None]:
    """Raise an interrupt in this thread by a signal that another thread gets, when this one is in a function.

    The system ends no wait of this thread then, as where a signal comes just before it waits.

    Args:
        waiting_in: the function's qualified name: many are called ``wait``, also that in which a thread's start waits.

    """

    def interrupt(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    def send() -> None:
        while waiting_in not in _functions(sys._current_frames()[here]) and not over.is_set():
            pass
        # The function's wait begins in the next microseconds.
        if not over.wait(0.02):
            signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)

    here, over = threading.get_ident(), threading.Event()
    before = signal.signal(signal.SIGUSR1, interrupt)
    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()
        signal.signal(signal.SIGUSR1, before)


def _functions(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        yield frame.f_code.co_qualname
        frame = frame.f_back
