"""The loop thread: collect all arrived observations, run each model once, send the answers.

asyncio runs gRPC, signals and loading. The sockets of the decision path are served inside its selector, without a
callback, handle or task per event. A turn ends when asyncio asks for more events. Then the observations submitted
during the turn, from sockets and gRPC handlers alike, are evaluated as one batch per model. Nothing waits for a timer.
"""

import asyncio
import os
import select
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextvars import Context
from time import perf_counter_ns
from typing import Any, Final, Protocol, TypeVarTuple, Unpack

from policybridge_server.counters import Counters

_Args = TypeVarTuple("_Args")

_MOST_IN_VAIN: Final = 6
"""After this number of fruitless waits in a row, the loop stays awake only after one in 64 lone decisions."""

_BUFFER: Final = 1 << 18
"""Bytes of the buffer for large reads."""

_AWAKE_TURNS: Final = 4
"""After a lone decision: an observation may arrive in pieces. What else arrives, such as a session, needs no haste."""


class Handler(Protocol):
    """Takes the events of one watched file descriptor."""

    def ready(self, events: int) -> None:
        """Take epoll's ``events``; must neither block nor raise."""


class Worker(Protocol):
    """Has more to do than fits into one turn."""

    def resume(self) -> None:
        """Do some of it; must neither block nor raise."""


class Loop(asyncio.SelectorEventLoop):
    """An asyncio loop that also serves watched descriptors and ends each turn with ``flush``.

    Args:
        flush: evaluates and answers the submitted observations; returns the number of decisions
            that clients asked for.
        spin: seconds that the thread stays awake after a lone decision, because the next observation of a
            compiler mostly arrives before a sleeping thread wakes up. If several compilers ask, sleeping makes a
            larger batch.
        counters: get the times of the turns.

    Attributes:
        counters: the server's counters.

    """

    def __init__(self, flush: Callable[[], int], spin: float = 0.0, counters: Counters | None = None) -> None:
        self.counters = counters or Counters()
        self._turns = _TurnSelector(flush, spin, self.counters)
        self._posts = _Posts(self.call_exception_handler)
        self._turns.watch(self._posts.fileno(), self._posts, select.EPOLLIN)
        self._buffer = memoryview(bytearray(_BUFFER))
        self._waking = False
        self._spawned: set[asyncio.Task[Any]] = set()
        super().__init__(self._turns)

    def read(self, fd: int) -> bytes:
        """Read up to 256 KiB, by way of one buffer: malloc takes fresh pages for a large one (7 µs, measured).

        Raises:
            OSError: as `os.read`.

        """
        return bytes(self._buffer[: os.readv(fd, [self._buffer])])

    def watch(self, fd: int, handler: Handler, events: int = select.EPOLLIN) -> None:
        """Serve ``fd`` inside the turns, level-triggered."""
        self._turns.watch(fd, handler, events)

    def rewatch(self, fd: int, events: int) -> None:
        """Change the events of a watched ``fd``; errors and hang-ups are always reported."""
        self._turns.epoll.modify(fd, events)

    def unwatch(self, fd: int) -> None:
        """Stop serving ``fd``; call this before it is closed."""
        self._turns.unwatch(fd)

    def again(self, worker: Worker) -> None:
        """Call ``worker`` once in the next turn, after the events that have arrived by then."""
        self._turns.again.append(worker)

    def post(self, call: Callable[..., object], *arguments: object) -> None:
        """Make a call in one of the next turns; for any thread.

        It takes a third of the time of `call_soon_threadsafe`, because asyncio has no part in it.

        Raises:
            RuntimeError: the loop is closed.

        """
        self._posts.add(call, arguments)

    def close(self) -> None:
        """Close the loop; it may leave out the calls that were posted last."""
        self._posts.close()
        super().close()

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run ``work`` as a task, and hold the task until it ends: asyncio itself keeps only a weak reference."""
        task = self.create_task(work)
        self._spawned.add(task)
        task.add_done_callback(self._spawned.discard)
        return task

    def _write_to_self(self) -> None:
        # Once until the loop has woken up: some hundred calls from threads fill the pipe, and a signal that comes
        # then would be lost, because it takes the same pipe.
        if not self._waking:
            self._waking = True
            super()._write_to_self()  # type: ignore[misc]

    def _process_self_data(self, data: bytes) -> None:
        # Calls before this line run in this turn or in the next one, which does not wait.
        self._waking = False
        super()._process_self_data(data)  # type: ignore[misc]

    def call_soon(
        self, callback: Callable[[Unpack[_Args]], object], *args: *_Args, context: Context | None = None
    ) -> asyncio.Handle:
        """Schedule ``callback``; a handler inside the turns may do so as well.

        Tasks and futures schedule their steps by this method, and `call_at` their timers, so that a handler need not
        announce work for asyncio.
        """
        self._turns.leaving = True
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[_Args]], object],
        *args: *_Args,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Schedule ``callback`` at ``when``, by the loop's clock; `call_later` uses this."""
        self._turns.leaving = True
        return super().call_at(when, callback, *args, context=context)


class _Posts:
    """The calls of other threads, and the socket that wakes the loop for them.

    Args:
        failed: is told of a call's error, as by asyncio.

    """

    def __init__(self, failed: Callable[[dict[str, Any]], None]) -> None:
        self._failed = failed
        self._calls: deque[tuple[Callable[..., object], tuple[object, ...]]] = deque()
        self._waking = False
        # Sockets and no descriptors: a thread that comes too late must not write into another file.
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._theirs.setblocking(False)

    def fileno(self) -> int:
        """Give the descriptor to watch."""
        return self._ours.fileno()

    def add(self, call: Callable[..., object], arguments: tuple[object, ...]) -> None:
        """See `Loop.post`."""
        self._calls.append((call, arguments))
        # Once until the loop has woken up: then it makes all calls.
        if not self._waking:
            self._waking = True
            try:
                self._theirs.send(b"\0")
            except OSError as error:
                raise RuntimeError("the loop is closed") from error

    def ready(self, events: int) -> None:  # noqa: ARG002
        """Make the calls."""
        self._ours.recv(16)
        # Calls before this line are made now; one after it wakes the loop again.
        self._waking = False
        for _ in range(len(self._calls)):
            call, arguments = self._calls.popleft()
            try:
                call(*arguments)
            except Exception as error:
                self._failed({"message": f"a posted call of {call!r} failed", "exception": error})

    def close(self) -> None:
        """Take no further calls."""
        self._ours.close()
        self._theirs.close()


class AwakeWaits:
    """Tells after which lone decisions the loop stays awake: after n waits in vain in a row, after one in 2ⁿ."""

    def __init__(self) -> None:
        self._in_vain = self._skipping = 0

    def is_next(self) -> bool:
        """Whether to stay awake after this decision."""
        self._skipping -= 1
        return self._skipping < 0

    def ended(self, *, arrived: bool) -> None:
        """Note whether an observation arrived while the loop stayed awake."""
        self._in_vain = 0 if arrived else min(self._in_vain + 1, _MOST_IN_VAIN)
        self._skipping = 2**self._in_vain - 1


class _TurnSelector(selectors.BaseSelector):
    """The selector of `Loop`: it waits for asyncio's descriptors and serves the watched ones itself.

    Attributes:
        epoll: the epoll object of the watched descriptors.
        again: the handlers that go on in the next turn.
        leaving: whether a handler has scheduled work in asyncio, which must run before the next wait.

    """

    def __init__(self, flush: Callable[[], int], spin: float, counters: Counters) -> None:
        self._flush = flush
        self._counters = counters
        # Do not spin on a single core: it would keep the compiler from running.
        self._spin = spin if len(os.sched_getaffinity(0)) > 1 else 0.0
        self._awake_turns = 0
        self._waits = AwakeWaits()
        self._inner = selectors.EpollSelector()
        self.epoll = select.epoll()
        self.epoll.register(self._inner.fileno(), select.EPOLLIN)
        self._handlers: dict[int, Handler] = {}
        # Unwatched in this turn: their events are not those of new files that get the same numbers.
        self._gone: set[int] = set()
        self.again: list[Worker] = []
        self.leaving = False

    def watch(self, fd: int, handler: Handler, events: int) -> None:
        """See `Loop.watch`."""
        self._handlers[fd] = handler
        self.epoll.register(fd, events)

    def unwatch(self, fd: int) -> None:
        """See `Loop.unwatch`."""
        if self._handlers.pop(fd, None):
            self.epoll.unregister(fd)
            self._gone.add(fd)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Run turns until asyncio has something to do, or ``timeout`` seconds are over."""
        self.leaving = False
        deadline = None if timeout is None else time.monotonic() + timeout
        if self._answered():
            deadline = 0.0
        while True:
            asyncio_ready = self._turn(0.0 if self.leaving or self.again else _left(deadline))
            if asyncio_ready or self.leaving or (deadline is not None and time.monotonic() >= deadline):
                return self._inner.select(0) if asyncio_ready else []

    def _turn(self, timeout: float | None) -> bool:
        asyncio_ready = False
        counters, turns = self._counters, self._counters.turns
        busy = perf_counter_ns() - counters.woke
        turns.buckets[busy.bit_length()] += 1
        turns.total += busy
        ready = self._awake(timeout) if self._awake_turns else self.epoll.poll(timeout)
        counters.woke = perf_counter_ns()
        handlers, gone = self._handlers, self._gone
        gone.clear()
        for fd, events in ready:
            handler = None if fd in gone else handlers.get(fd)
            if handler is not None:
                handler.ready(events)
            elif fd == self._inner.fileno():
                asyncio_ready = True
        if self.again:
            again, self.again = self.again, []
            for worker in again:
                worker.resume()
        self._answered()
        return asyncio_ready

    def _answered(self) -> bool:
        count = self._flush()
        if count:
            self._awake_turns = _AWAKE_TURNS if count == 1 else 0
        return count > 0

    def _awake(self, timeout: float | None) -> list[tuple[int, int]]:
        """Wait for events, at first without sleeping; sleep sooner after fruitless waits."""
        events = self.epoll.poll(0)
        if events or timeout == 0.0:
            return events
        if self._waits.is_next():
            events = self._spun()
            self._waits.ended(arrived=bool(events))
        self._awake_turns = self._awake_turns - 1 if events else 0
        return events or self.epoll.poll(timeout)

    def _spun(self) -> list[tuple[int, int]]:
        events: list[tuple[int, int]] = []
        end = time.perf_counter() + self._spin
        while not events and time.perf_counter() < end:
            # A compiler that wants this core may have it.
            os.sched_yield()
            events = self.epoll.poll(0)
        return events

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Wait for one of asyncio's own descriptors."""
        return self._inner.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        """Stop waiting for one of asyncio's descriptors."""
        return self._inner.unregister(fileobj)

    def modify(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        """Change the events that asyncio waits for."""
        return self._inner.modify(fileobj, events, data)

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        """Give asyncio's descriptors."""
        return self._inner.get_map()

    def close(self) -> None:
        """Close the descriptors of both selectors."""
        self.epoll.close()
        self._inner.close()


def _left(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())
