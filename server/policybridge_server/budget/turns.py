"""The time of one peer in the turns of the loop."""

import asyncio
from collections import deque
from time import perf_counter
from typing import Final

from policybridge_server.loop import Loop, Worker

_SLICE: Final = 1e-3
"""Seconds that a connection works in one turn at most; the rest of its work waits for the other connections."""

_TURN: Final = 4e-3
"""Seconds that all connections of one peer with work left share in one turn."""

_BEGUN: Final = 16
"""Requests of one peer that begin in one turn, where each is a task of its own: about as much work as `_TURN`."""


class Turns:
    """The turns of one peer: its connections with work left stand in one queue, and share 4 ms of each turn.

    A connection does its first piece of work at once when its bytes arrive. So a client with one request waits
    for no queue, and the other connections of a busy peer wait as long as those of other peers: for 4 ms of each.
    For the loop thread.

    Args:
        loop: has the turns.

    """

    __slots__ = ("_begun", "_loop", "_queue", "_scheduled")

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._queue: deque[Worker] = deque()
        self._begun = 0
        self._scheduled = False

    @property
    def slice(self) -> float:
        """Seconds that a connection may work now before it goes behind the others of the queue."""
        waiting = len(self._queue)
        return _SLICE if waiting * _SLICE <= _TURN else _TURN / waiting

    def again(self, worker: Worker) -> None:
        """Call ``worker`` once, in this turn or a later one, after those that wait already."""
        self._queue.append(worker)
        self._schedule()

    async def begin(self) -> None:
        """Wait until one more request may begin: each is a task, whose time is not measured."""
        if self._queue or self._begun >= _BEGUN:
            begins = self._loop.create_future()
            self.again(_Beginning(self, begins))
            await begins
        else:
            self.began()
            self._schedule()

    def began(self) -> None:
        """Count a request that begins."""
        self._begun += 1

    def resume(self) -> None:
        """Let the connections of the queue work, each once at most, until the peer's time in this turn is over."""
        self._scheduled = False
        self._begun, end = 0, perf_counter() + _TURN
        for _ in range(len(self._queue)):
            self._queue.popleft().resume()
            if self._begun >= _BEGUN or perf_counter() > end:
                break
        if self._queue:
            self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.again(self)


class _Beginning:
    """A request that waits until it may begin."""

    def __init__(self, turns: Turns, begins: "asyncio.Future[None]") -> None:
        self._turns = turns
        self._begins = begins

    def resume(self) -> None:
        # A client that has gone away has cancelled its request.
        if not self._begins.done():
            self._turns.began()
            self._begins.set_result(None)
