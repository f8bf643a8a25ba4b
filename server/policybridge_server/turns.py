"""The loop thread's turns: collect all that has arrived, run each model once, answer everybody.

asyncio runs gRPC, signals and loading; the sockets of the decision path are served inside its selector, without a
callback, handle or task per event. A turn ends when asyncio asks for more events: then everything that was submitted in
it, from sockets and gRPC handlers alike, is evaluated as one batch per model. Nobody ever waits for a timer.
"""

import os
import select
import selectors
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol


class Handler(Protocol):
    """Takes the events of one watched file descriptor."""

    def ready(self, events: int) -> None:
        """Take epoll's ``events``; must neither block nor raise."""
        ...


class TurnSelector(selectors.BaseSelector):
    """An asyncio selector that serves watched descriptors itself and ends each turn with ``flush``.

    Args:
        flush: evaluates and answers what was submitted; gives how many decisions there were.
        spin: seconds for which the thread stays awake after a lone decision: a compiler's next question mostly comes
            sooner than a sleeping thread wakes up. Where several ask, waiting makes a better batch.

    """

    def __init__(self, flush: Callable[[], int], spin: float = 0.0) -> None:
        self._flush = flush
        # With one core the compiler could not even ask meanwhile.
        self._spin = spin if len(os.sched_getaffinity(0)) > 1 else 0.0
        self._lone = False
        self._inner = selectors.EpollSelector()
        self._epoll = select.epoll()
        self._epoll.register(self._inner.fileno(), select.EPOLLIN)
        self._handlers: dict[int, Handler] = {}
        self._leaving = False

    def watch(self, fd: int, handler: Handler, events: int = select.EPOLLIN) -> None:
        """Serve ``fd`` inside the turns, level-triggered."""
        self._handlers[fd] = handler
        self._epoll.register(fd, events)

    def rewatch(self, fd: int, events: int) -> None:
        """Change what is waited for on a watched ``fd``; errors and hang-ups are always told."""
        self._epoll.modify(fd, events)

    def unwatch(self, fd: int) -> None:
        """Stop serving ``fd``; before it is closed."""
        if self._handlers.pop(fd, None):
            self._epoll.unregister(fd)

    def leave(self) -> None:
        """Let asyncio run before the next wait: a handler has scheduled something there."""
        self._leaving = True

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Run turns until asyncio has something to do, or ``timeout`` seconds are over."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._answered():
            deadline = 0.0
        while True:
            asyncio_ready = self._turn(_left(deadline))
            if asyncio_ready or self._leaving or (deadline is not None and time.monotonic() >= deadline):
                self._leaving = False
                return self._inner.select(0) if asyncio_ready else []

    def _turn(self, timeout: float | None) -> bool:
        asyncio_ready = False
        for fd, events in self._awake(timeout) if self._lone else self._epoll.poll(timeout):
            handler = self._handlers.get(fd)
            if handler is not None:
                handler.ready(events)
            elif fd == self._inner.fileno():
                asyncio_ready = True
        self._answered()
        return asyncio_ready

    def _answered(self) -> bool:
        count = self._flush()
        if count:
            self._lone = count == 1
        return count > 0

    def _awake(self, timeout: float | None) -> list[tuple[int, int]]:
        """Wait for events without going to sleep, for a while."""
        events = self._epoll.poll(0)
        if events or timeout == 0.0:
            return events
        end = time.perf_counter() + self._spin
        while not events and time.perf_counter() < end:
            events = self._epoll.poll(0)
        self._lone = bool(events)
        return events or self._epoll.poll(timeout)

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Wait for asyncio's own descriptors."""
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Stop waiting for one of asyncio's descriptors."""
        return self._inner.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Change what asyncio waits for."""
        return self._inner.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """Give asyncio's descriptors."""
        return self._inner.get_map()

    def close(self) -> None:
        """Give the descriptors of both selectors back."""
        self._epoll.close()
        self._inner.close()


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
