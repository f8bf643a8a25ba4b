"""Threads that do work for another thread, which a signal may interrupt at any moment.

What a signal's handler raises comes between any two steps of the main thread, in `concurrent.futures` also right after
a lock was taken: it stays taken, and the threads wait for it for ever (https://github.com/python/cpython/issues/74174).
What the threads here have in common with the one that they work for is in C, and its locks are never left behind.
"""

from _thread import start_new_thread
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Generic, NoReturn, TypeVar

from policybridge_client.llvm.signals import AWAKE_WITHIN

_T = TypeVar("_T")
_R = TypeVar("_R")

Ended = Callable[[], _R]
"""Gives what a work came to, or raises what it raised."""


class Threads(Generic[_T, _R]):
    """A context manager. When the block is left, what has not begun never begins, and what has begun is waited for.

    Args:
        most: threads at a time.

    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._count = 0
        self._is_over = False
        self._due: SimpleQueue[tuple[_T, Ended[_R]] | None] = SimpleQueue()
        self._done: SimpleQueue[tuple[_T, Ended[_R]]] = SimpleQueue()
        self._left: SimpleQueue[None] = SimpleQueue()

    def __enter__(self) -> "Threads[_T, _R]":
        return self

    def submit(self, item: _T, work: Callable[[], _R]) -> None:
        """Have the work done, for an item by which it is known then."""
        self._due.put((item, work))
        if self._count < self._most:
            # Not `threading.Thread`, whose start waits for a lock of its own.
            start_new_thread(self._run, ())
            self._count += 1

    def take(self) -> tuple[_T, Ended[_R]]:
        """Wait for a work that has ended, and give its item and what it came to."""
        return _next_of(self._done)

    def _run(self) -> None:
        try:
            while (due := self._due.get()) is not None:
                if not self._is_over:
                    self._done.put((due[0], _ended(due[1])))
        finally:
            self._left.put(None)

    def __exit__(self, *_error: object) -> None:
        self._is_over = True
        for _ in range(self._count):
            self._due.put(None)
        for _ in range(self._count):
            _next_of(self._left)


def in_order(
    job: Callable[[_T], _R], items: Iterable[_T], most: int, stop: Callable[[], None] = lambda: None
) -> Generator[Ended[_R], None, None]:
    """Call ``job`` for all items in as many threads, and give what each call came to, in the order of the items.

    Where it is left before its end, ``stop`` is called first: it is to end the calls that are under way.
    """
    with Threads[int, _R](most) as threads:
        try:
            numbers = [_submitted(threads, number, partial(job, item)) for number, item in enumerate(items)]
            waiting: dict[int, Ended[_R]] = {}
            for number in numbers:
                while number not in waiting:
                    key, ended = threads.take()
                    waiting[key] = ended
                yield waiting.pop(number)
        except BaseException:
            stop()
            raise


def _submitted(threads: Threads[int, _R], number: int, work: Callable[[], _R]) -> int:
    threads.submit(number, work)
    return number


def _next_of(queue: SimpleQueue[_T]) -> _T:
    while True:
        with suppress(Empty):
            return queue.get(timeout=AWAKE_WITHIN)


def _ended(work: Callable[[], _R]) -> Ended[_R]:
    try:
        result = work()
    except BaseException as error:
        return partial(_raise, error)
    return lambda: result


def _raise(error: BaseException) -> NoReturn:
    raise error
