"""Several compilations at once, each in a worker process."""

import signal
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from typing import TypeVar

from policybridge_demo.corpus import Module

_T = TypeVar("_T")


def for_each(job: Callable[[Module], _T], modules: Iterable[Module], jobs: int) -> Iterator[tuple[int, _T]]:
    """Do ``job`` for all modules, ``jobs`` at a time, and give what comes of it as it comes, with its module's number.

    Processes, because threads would fight for one interpreter between two answers. What has not begun when one job
    fails, or when the caller stops, is not begun any more.

    Raises:
        Exception: what the first job raised that failed.

    """
    # A fork would copy whatever threads there are in the middle of their work.
    with ProcessPoolExecutor(jobs, get_context("spawn"), _leave_interrupts_to_the_parent) as pool:
        futures = {pool.submit(job, module): number for number, module in enumerate(modules)}
        try:
            for future in as_completed(futures):
                yield futures[future], future.result()
        finally:
            pool.shutdown(cancel_futures=True)


def _leave_interrupts_to_the_parent() -> None:
    # A terminal sends them to all: the parent then begins nothing more, and what runs comes to its end in a second.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
