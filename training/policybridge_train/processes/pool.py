"""Many compilations at once, which all end when one thing goes wrong or the user stops them."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from threading import Lock
from typing import TypeVar

from policybridge_core.errors import PreconditionError
from policybridge_train.processes.threads import in_order

_T = TypeVar("_T")
_R = TypeVar("_R")


class Running:
    """The compilers that run now, so that another thread can end them all."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._ends: dict[object, Callable[[], None]] = {}
        self._over = False

    @property
    def over(self) -> bool:
        """Whether all were ended."""
        return self._over

    @contextmanager
    def counted(self, end: Callable[[], None]) -> Iterator[None]:
        """Count a compiler as running for as long as the block lasts.

        Args:
            end: ends the compiler. It is called at most once, from any thread, and never after the block.

        Raises:
            PreconditionError: all were ended before; the compiler is ended, too.

        """
        key = object()
        with self._lock:
            if self._over:
                end()
                raise PreconditionError("the compilations were stopped")
            self._ends[key] = end
        try:
            yield
        finally:
            with self._lock:
                self._ends.pop(key, None)

    def end(self) -> None:
        """End all, and each that starts later."""
        with self._lock:
            self._over = True
            while self._ends:
                self._ends.popitem()[1]()

    def end_also(self, end: Callable[[], None]) -> None:
        """Call ``end`` when all are ended: it ends others that are not counted here.

        Raises:
            PreconditionError: all were ended before; ``end`` has been called.

        """
        with self._lock:
            if self._over:
                end()
                raise PreconditionError("the compilations were stopped")
            self._ends[object()] = end


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
