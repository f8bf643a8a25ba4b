"""Threads that make calls for a thread which a signal may interrupt at any moment.

A signal's handler may raise between any two steps of the main thread. In `concurrent.futures` this can happen right
after a lock was taken: it stays taken, and the threads wait for ever (https://github.com/python/cpython/issues/74174).
The queues shared here are implemented in C: an exception never leaves one of their locks taken.
"""

from _thread import start_new_thread
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Generic, NoReturn, TypeVar

from policybridge_client.llvm.signals import AWAKE_WITHIN
from policybridge_train.processes.process import Running

_T = TypeVar("_T")
_R = TypeVar("_R")

Ended = Callable[[], _R]
"""Gives the result of a call that has ended, or raises the call's error."""


class Threads(Generic[_T, _R]):
    """A context manager that makes calls in threads. Its end drops the waiting calls, and waits for the running ones.

    Args:
        most: the limit of threads.

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
        """Queue the call of ``work``; `take` gives its result, with ``item``."""
        self._due.put((item, work))
        if self._count < self._most:
            # Not `threading.Thread`, whose start waits for a lock of its own.
            start_new_thread(self._run, ())
            self._count += 1

    def take(self) -> tuple[_T, Ended[_R]]:
        """Wait until a call has ended; give its item and its result."""
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
    """Call ``job`` for all items in ``most`` threads; give the results in the order of the items.

    If the caller closes the generator before its end, the generator calls ``stop``, which must end the running calls.
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


def for_each(job: Callable[[_T], _R], items: Iterable[_T], jobs: int, running: Running) -> Iterator[_R]:
    """Run ``job`` for all items in ``jobs`` threads, and give the results in the order of the items.

    Threads are enough: the work is done by compilers, which are processes. When a job raises, when the caller stops
    iterating, or when a signal raises an exception in the caller's thread, all compilers that count themselves in
    ``running`` are ended, and jobs that have not begun never begin.

    Raises:
        Exception: that of the first job, in the order of the items, that raised one.

    """
    with closing(in_order(job, items, jobs, running.end)) as each:
        for ended in each:
            yield ended()


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
