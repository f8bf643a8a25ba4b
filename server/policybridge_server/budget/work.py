"""The threads that do the work of clients which would hold up the loop, and the share of one peer in them."""

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final, ParamSpec, Protocol, TypeVar
from weakref import WeakValueDictionary

from policybridge_server.loop import Loop

_READERS: Final = 4
"""Threads that read files, which may take seconds."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Aside(Protocol):
    """Runs a job in a thread: `Work.run`, or `asyncio.to_thread` on ports that do not know their peers."""

    def __call__(self, job: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Awaitable[_T]:
        """Give the result of the job."""


class Threads:
    """The threads of all peers for one kind of work.

    Args:
        loop: the loop on whose thread all methods are called.
        name: of the threads.
        most: number of threads.

    """

    def __init__(self, loop: Loop, name: str, most: int) -> None:
        self.loop = loop
        self.free = most
        self._pool = ThreadPoolExecutor(most, name)
        self._waiting: deque[Work] = deque()
        self._works: WeakValueDictionary[str, Work] = WeakValueDictionary()

    @classmethod
    def computing(cls, loop: Loop) -> "Threads":
        """Make those for handshakes, unpacking and parsing; half of the cores are left to the loop and the models."""
        return cls(loop, "policybridge-work", max(2, (os.cpu_count() or 1) // 2))

    @classmethod
    def reading(cls, loop: Loop) -> "Threads":
        """Make those that read files, so that no computation waits for a disk."""
        return cls(loop, "policybridge-read", _READERS)

    def of(self, peer: str) -> "Work":
        """Give the share of a peer, the same one while a connection or a job of it is left."""
        work = self._works.get(peer)
        if work is None:
            work = self._works[peer] = Work(self)
        return work

    def wait(self, work: "Work") -> None:
        """Let a peer whose first job has come wait for a thread."""
        self._waiting.append(work)
        self._start()

    def _start(self) -> None:
        """Start jobs while threads are free: one of each peer in turn."""
        for _ in range(len(self._waiting)):
            if not self.free:
                return
            work = self._waiting.popleft()
            if work.may_start(self.free):
                self.free -= 1
                self._pool.submit(work.next()).add_done_callback(partial(self._post, work))
            if work.jobs:
                self._waiting.append(work)

    def _post(self, work: "Work", job: "Future[None]") -> None:  # noqa: ARG002
        with suppress(RuntimeError):  # The loop is closed.
            self.loop.call_soon_threadsafe(self._ended, work)

    def _ended(self, work: "Work") -> None:
        self.free += 1
        work.running -= 1
        self._start()


class Work:
    """The share of one peer in threads: it has as many as it leaves free, and one at least when its turn comes.

    Args:
        threads: those of all peers.

    Attributes:
        jobs: those that wait, in their order.
        running: number of jobs that run.

    """

    def __init__(self, threads: Threads) -> None:
        self.jobs: deque[Callable[[], None]] = deque()
        self.running = 0
        self._threads = threads

    def may_start(self, free: int) -> bool:
        """Whether one more job may run while ``free`` threads are."""
        return not self.running or self.running + 1 < free

    def next(self) -> Callable[[], None]:
        """Give the next job, which runs now."""
        self.running += 1
        return self.jobs.popleft()

    def run(self, job: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> "asyncio.Future[_T]":
        """Run ``job`` in a thread as soon as the peer may; a cancelled one that has not begun is left out."""
        loop = self._threads.loop
        result: asyncio.Future[_T] = loop.create_future()
        self.jobs.append(partial(_run, loop, result, partial(job, *args, **kwargs)))
        if len(self.jobs) == 1:
            self._threads.wait(self)
        return result


def _run(loop: Loop, result: "asyncio.Future[Any]", job: Callable[[], Any]) -> None:
    if result.cancelled():
        return
    try:
        settle = partial(_settle, result.set_result, result, job())
    except BaseException as error:  # The loop's thread raises it.
        settle = partial(_settle, result.set_exception, result, error)
    with suppress(RuntimeError):  # The loop is closed.
        loop.call_soon_threadsafe(settle)


def _settle(settle: Callable[[Any], None], result: "asyncio.Future[Any]", value: Any) -> None:
    if not result.done():
        settle(value)
